"""One collective at one worker, as a machine of packets and time (section 6 of the protocol).

It takes packets and the time, and gives packets to send and the time of its next timer. It knows
neither sockets nor clocks, so tests can play any schedule of loss, duplication and delay. The
machine is in C++ (`drivers/native/worker`); names and texts are here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collective import Description, Reduction, storage_dtype
from afflux_drivers.errors import AggregatorMisbehaved, Disagreement
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire

__all__ = ["Operation"]

# The numbers that the native code gives them.

T = TypeVar("T")


class Operation(_native.Operation):
    """One all-reduce of one tensor.

    Args:
        session: The job run; the operation takes its next number.
        elements: 1-D, contiguous, in the storage dtype of `dtype`. They must not change before the
            operation is over.
        dtype: Their type.
        reduction: What is done.
        shape: Shape of the tensor, for the ranks to compare.

    Attributes:
        description: What was asked for.
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
    ) -> None:
        _check(elements, dtype, reduction, shape)
        self._session = session
        self.description = Description(session.number, reduction, dtype, shape)
        self._result: NDArray[Any] = np.zeros(len(elements), storage_dtype(dtype))
        super().__init__(
            session,
            elements,
            self._result,
            int(dtype),
            reduction.number,
            self.description.fingerprint,
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
        return self.judged(partial(self.receive_bytes, datagram, now))

    def judged(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; turn errors of the operation into those of this package.

        Raises:
            Disagreement: If the ranks called different operations.
            AggregatorMisbehaved: If a result breaks the protocol.
        """
        try:
            return call()
        except _native.Misbehaved as error:
            raise AggregatorMisbehaved(str(error)) from None
        except _native.Disagreed as error:
            (found,) = error.args or (None,)
            raise self._disagreement(None if found is None else tuple(found)) from None

    def result(self) -> NDArray[Any]:
        """Return the reduced elements, 1-D, in storage dtype, once `done`."""
        if not self.done:
            raise RuntimeError(f"operation {self.description.text} is not over")
        return self._result

    def missing_ranks(self) -> tuple[int, ...]:
        """Return the ranks whose contributions are missing, as last reported; ascending."""
        ticket, bits = self._session.ticket, self.missing_workers
        workers = (worker for worker in range(ticket.workers) if bits >> worker & 1)
        return tuple(sorted(map(ticket.rank_of, workers)))

    def _disagreement(self, fingerprints: tuple[int, ...] | None) -> Disagreement:
        own, session = self.description.fingerprint, self._session
        if fingerprints is None:
            others = "another opcode, dtype or operation number came from some rank"
        else:
            ranks = [rank for rank, value in enumerate(fingerprints) if value != own]
            others = f"ranks {ranks} called something else"
        return Disagreement(
            f"the ranks disagree: rank {session.rank} called this operation, but {others} "
            f"(aggregator {session.ticket.host}:{session.ticket.port})",
            number=self.description.number,
            description=self.description.text,
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
