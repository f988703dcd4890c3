"""How the ranks of one host get a segment of memory that they share."""

import json
import os

from afflux.group.exchange import Exchange, Introduction
from afflux.group.reducer import SharedMemoryReducer
from afflux.group.settings import Settings
from afflux_drivers.errors import AffluxError
from afflux_drivers.shared.segment import SegmentOffer, fetch_segment
from afflux_drivers.shared.worker import SharedWorker

__all__ = ["Sharing", "why_not_shared"]


def why_not_shared(everyone: list[Introduction]) -> str:
    """Return why ranks with these introductions cannot share memory; empty if they may try."""
    for rank, each in enumerate(everyone):
        if each.host != everyone[0].host:
            return f"rank {rank} is on another host or in another network namespace than rank 0"
    return ""


class Sharing:
    """One rank's steps to a shared segment. Collective over the group.

    Args:
        exchange: The group's.
        rank: Own rank in the group.
        size: Ranks of the group.
    """

    def __init__(self, exchange: Exchange, rank: int, size: int) -> None:
        self._exchange = exchange
        self._rank = rank
        self._size = size
        self._offer: SegmentOffer | None = None

    def offer(self) -> str:
        """Make a segment, as rank 0, and return the ticket with which the others get it.

        Raises:
            OSError: No memory, descriptor or socket is to be had.
        """
        self._offer = SegmentOffer(self._size)
        return json.dumps({"name": self._offer.name, "secret": self._offer.secret})

    def enter(
        self, ticket: str, settings: Settings
    ) -> tuple[SharedMemoryReducer | None, list[str]]:
        """Hand out or fetch the segment, map it, and learn whether all ranks have.

        Returns:
            The reducer, or None if some rank has not mapped it; and which have not, and why.
        """
        worker: SharedWorker | None = None
        refusal = ""
        try:
            descriptor = self._descriptor(ticket)
            worker = SharedWorker(descriptor, self._rank, self._size)
        except (AffluxError, OSError, RuntimeError, ValueError) as error:
            refusal = str(error) or type(error).__name__
        try:
            refusals = self._exchange.mapped(refusal)
            if worker is not None and not refusals:
                return SharedMemoryReducer(worker, settings.aggregator), []
        except BaseException:
            if worker is not None:
                worker.close()
            raise
        if worker is not None:
            worker.close()
        return None, refusals

    def _descriptor(self, ticket: str) -> int:
        if self._offer is None:
            offer = json.loads(ticket)
            return fetch_segment(offer["name"], offer["secret"], self._rank)
        try:
            missing = self._offer.serve()
        finally:
            self._offer.close()
        if missing:
            os.close(self._offer.descriptor)
            names = ", ".join(map(str, sorted(missing)))
            raise AffluxError(f"rank(s) {names} did not fetch the memory")
        return self._offer.descriptor
