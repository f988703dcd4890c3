"""One collective at one worker, as a machine of packets and time (section 6 of the protocol).

It takes packets and the time, and gives packets to send and the time of its next timer. It knows
neither sockets nor clocks, so tests can play any schedule of loss, duplication and delay. The
machine is in C++ (`drivers/native/worker`); names and texts are here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.addresses import authority
from afflux_drivers.collective import Description, Reduction, storage_dtype
from afflux_drivers.errors import AffluxError, AggregatorMisbehaved, Disagreement
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire

__all__ = ["HostPiece", "OpenedPart", "Operation", "judged", "missing_ranks"]


class HostPiece(NamedTuple):
    """The contributions of a host's other ranks, which its leader sends with its own.

    Attributes:
        others: Their elements, in the order of the ranks, as many each.
        exponents: Those of their blocks of 256 bytes, as `_native.scan_into` writes them, 0 for
            one that is absent and not looked at. None at all for a tensor that travels with the
            opening round.
        mirror: Where else the blocks of the result go that any rank has sent, and a byte for each
            that becomes 1 then; not if the tensor travels with the opening round.
        partial: Whether these are only some of the elements of a tensor of the operation's shape.
        called: The reduction that the ranks have called, if this operation has another one.
    """

    others: Sequence[NDArray[Any]] = ()
    exponents: Sequence[NDArray[np.uint8]] = ()
    mirror: tuple[NDArray[Any], NDArray[np.uint8]] | None = None
    partial: bool = False
    called: Reduction | None = None


_NO_OTHERS = HostPiece()


def judged(
    error: Exception, description: Description, session: Session, peer: str = ""
) -> AffluxError:
    """Return this package's error for one of the native code's: what ended an operation.

    Args:
        error: The native code's.
        description: The operation.
        session: The worker's part in the job.
        peer: The aggregator, if there are sockets.
    """
    if isinstance(error, _native.Disagreed):
        (found,) = error.args or (None,)
        return _disagreement(None if found is None else tuple(found), description, session)
    where = f"aggregator at {peer}, rank {session.rank}: " if peer else ""
    return AggregatorMisbehaved(f"{where}{error}")


def missing_ranks(part: _native.Part, session: Session) -> tuple[int, ...]:
    """Return the ranks whose contributions are missing, as last reported; ascending."""
    ticket, bits = session.ticket, part.missing_workers
    workers = (worker for worker in range(ticket.workers) if bits >> worker & 1)
    return tuple(sorted(rank for worker in workers for rank in ticket.ranks_of(worker)))


class OpenedPart:
    """One aggregator's part of an operation that C++ has opened.

    Args:
        part: The native code's.
        session: The worker's part in the job there.
        description: The operation.

    Attributes:
        description: The same.
    """

    def __init__(self, part: _native.Part, session: Session, description: Description) -> None:
        self._part = part
        self._session = session
        self.description = description

    @property
    def done(self) -> bool:
        """Whether the result is complete."""
        return self._part.done

    @property
    def vanishing(self) -> int:
        """Bytes of the longest packet that never arrives, or 0."""
        return self._part.vanishing

    def waits_above(self) -> bool:
        """Return whether the aggregator waits for its parent."""
        return self._part.waits_above()

    def missing_ranks(self) -> tuple[int, ...]:
        """Return the ranks whose contributions are missing, as last reported; ascending."""
        return missing_ranks(self._part, self._session)

    def judged(self, error: Exception, peer: str = "") -> AffluxError:
        """Return this package's error for one of the native code's; see `judged`."""
        return judged(error, self.description, self._session, peer)


class Operation(_native.Operation):
    """One all-reduce of one tensor, or one aggregator's part of it.

    Blocks that `not_summed` names are yet to come when it is over, by `Again`.

    Args:
        session: The job run; the operation takes its next number.
        elements: 1-D, contiguous, in the storage dtype of `dtype`. Nobody else may change them
            before the operation is over.
        dtype: Their type.
        reduction: The reduction to apply.
        shape: Shape of the tensor, for the ranks to compare.
        share: Number of the aggregator, and of how many that share the tensor's columns. All parts
            of an operation have the same number.
        slots: The least slot count of their jobs; by default that of the session's.
        result: Where the result goes, that of all parts of an operation: zeros of the elements'
            length and dtype, or the elements themselves. New zeros if None.
        host: The contributions of the other ranks of the session.

    Attributes:
        description: The operation.
        next_timer: When `expire` is due, in seconds; infinite if nothing is outstanding.
        done: Whether the result is complete.

    Raises:
        ValueError: If elements, dtype, reduction and shape do not fit one another, or the elements
            are too many for the job.
    """

    def __init__(
        self,
        session: Session,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        share: tuple[int, int] = (0, 1),
        slots: int | None = None,
        result: NDArray[Any] | None = None,
        host: HostPiece = _NO_OTHERS,
    ) -> None:
        _check(elements, dtype, reduction, (len(elements),) if host.partial else shape)
        others = host.others
        if len(others) != len(session.ranks) - 1:
            raise ValueError(
                f"elements of {len(others)} other ranks were given, those of "
                f"{len(session.ranks) - 1} are sent"
            )
        self._session = session
        self.description = Description(session.number, host.called or reduction, dtype, shape)
        self._result: NDArray[Any] = (
            np.zeros(len(elements), storage_dtype(dtype)) if result is None else result
        )
        super().__init__(
            session,
            elements,
            self._result,
            int(dtype),
            reduction.number,
            self.description.fingerprint,
            share,
            session.ticket.slots if slots is None else slots,
            list(others),
            list(host.exponents),
            host.mirror,
        )

    def receive(self, datagram: bytes, now: float) -> bytes | None:
        """Take a datagram that came from the aggregator's address.

        Args:
            datagram: The UDP payload.
            now: Seconds.

        Returns:
            A datagram to send, or None.

        Raises:
            Disagreement: If the ranks called different operations.
            AggregatorMisbehaved: If the result breaks the protocol.
        """
        try:
            return self.receive_bytes(datagram, now)
        except (_native.Misbehaved, _native.Disagreed) as error:
            raise self.judged(error) from None

    def judged(self, error: Exception, peer: str = "") -> AffluxError:
        """Return this package's error for one of the native code's; see `judged`."""
        return judged(error, self.description, self._session, peer)

    def result(self) -> NDArray[Any]:
        """Return the reduced elements, 1-D, in storage dtype, once `done`."""
        if not self.done:
            raise RuntimeError(f"operation {self.description.text} is not over")
        return self._result

    def missing_ranks(self) -> tuple[int, ...]:
        """Return the ranks whose contributions are missing, as last reported; ascending."""
        return missing_ranks(self, self._session)


def _disagreement(
    fingerprints: tuple[int, ...] | None, description: Description, session: Session
) -> Disagreement:
    own = description.fingerprint
    if fingerprints is None:
        others = "another opcode, dtype or operation number came from some rank"
    else:
        found = zip(session.places, fingerprints, strict=True)
        ranks = [rank for place, value in found if value != own for rank in place]
        others = f"ranks {ranks} called something else"
    return Disagreement(
        f"the ranks disagree: rank {session.rank} called this operation, but {others} "
        f"(aggregator {authority(session.ticket.host, session.ticket.port)})",
        number=description.number,
        description=description.text,
        fingerprint=own,
        fingerprints=fingerprints,
    )


def _check(
    elements: NDArray[Any], dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]
) -> None:
    expected = storage_dtype(dtype)
    if elements.ndim != 1 or elements.dtype != expected or not elements.flags.c_contiguous:
        raise ValueError(
            f"{dtype.name.lower()} elements must be a contiguous 1-D array of {expected}, "
            f"not {elements.ndim}-D of {elements.dtype}"
        )
    size = 1
    for length in shape:
        if length < 0:
            raise ValueError(f"shape {shape} has a negative size")
        size *= length
    if size != len(elements):
        raise ValueError(f"shape {shape} has {size} elements, {len(elements)} were given")
    if dtype is wire.Dtype.INT32 and reduction is Reduction.AVG:
        raise ValueError("the average of int32 is not defined; reduce with sum and divide")
