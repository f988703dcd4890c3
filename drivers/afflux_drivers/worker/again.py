"""Blocks that an aggregator could not sum, brought again (docs/protocol.md, section 8.5)."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_drivers.errors import AffluxError, AggregatorMisbehaved, Disagreement
from afflux_drivers.worker.operation import HostPiece, missing_ranks
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire

__all__ = ["Again"]

_NO_OTHERS = HostPiece()


class Again(_native.Again):
    """The ranks' own blocks, side by side, which each rank sums for itself.

    Args:
        session: The job run; the operation takes its next number.
        elements: Those of the operation that is over, unchanged in the blocks that come again.
        result: Where the operation's result is; may be the elements.
        dtype: Their type.
        reduction: The reduction.
        blocks: Numbers of the blocks that were not summed, ascending; the first 1,024 are brought.
        host: The contributions of the other ranks of the session, and the mirror of the result, as
            the operation had them.
    """

    def __init__(
        self,
        session: Session,
        elements: NDArray[Any],
        result: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        blocks: Sequence[int],
        host: HostPiece = _NO_OTHERS,
    ) -> None:
        self._session = session
        self._number = session.number
        super().__init__(
            session,
            elements,
            result,
            int(dtype),
            reduction.number,
            list(blocks),
            (0, 1),
            session.ticket.slots,
            list(host.others),
            list(host.exponents),
            host.mirror,
        )

    def receive(self, datagram: bytes, now: float) -> bytes | None:
        """Take a datagram as `Operation.receive` does.

        Raises:
            Disagreement: If the ranks bring other blocks.
            AggregatorMisbehaved: If the result breaks the protocol.
        """
        try:
            return self.receive_bytes(datagram, now)
        except (_native.Misbehaved, _native.Disagreed) as error:
            raise self.judged(error) from None

    def judged(self, error: Exception, peer: str = "") -> AffluxError:
        """Return this package's error for one of the native code's: what ended the operation."""
        session = self._session
        where = f"aggregator at {peer}, rank {session.rank}: " if peer else ""
        if not isinstance(error, _native.Disagreed):
            return AggregatorMisbehaved(f"{where}{error}")
        return Disagreement(
            f"{where}the ranks disagree: rank {session.rank} brings blocks again that were not "
            f"summed ({self.text}), and some rank brings others",
            number=self._number,
            description=self.text,
            fingerprint=0,
            fingerprints=None,
        )

    def missing_ranks(self) -> tuple[int, ...]:
        """Return the ranks whose contributions are missing, as last reported; ascending."""
        return missing_ranks(self, self._session)
