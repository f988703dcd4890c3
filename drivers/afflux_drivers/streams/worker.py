"""A rank's end of a group whose ranks have streams to each other."""

import socket
from collections.abc import Sequence
from typing import Any

from afflux_drivers import _native
from afflux_drivers.collectives.worker import GroupWorker
from afflux_drivers.errors import AffluxError

__all__ = ["StreamsWorker"]

_AGGREGATOR = "the aggregator: "
"""So begins the native part's text about it."""


class StreamsWorker(GroupWorker):
    """One rank of one group with streams between each two ranks; see `GroupWorker`.

    Args:
        rank: Own rank.
        lanes: Connected sockets, non-blocking, by lane and rank; None for the own one. They belong
            to the worker from now on. Each lane carries a share of every larger tensor.
        threads: How many move the lanes, the calling one among them.
        one_hop: All-reduces for which each rank sends at most so many bytes more by it take one
            hop; the same at all ranks.
        aggregator: Host and port of the aggregator to which the last socket of each lane leads;
            empty if there is none.
        ucx: The lanes as UCX carries them, the worker's from now on; None if TCP does.
        goes_on: Whether the ranks go on when the aggregator ends.
    """

    def __init__(
        self,
        rank: int,
        lanes: Sequence[Sequence[socket.socket | None]],
        threads: int = 1,
        one_hop: int = 64 << 10,
        aggregator: str = "",
        ucx: _native.UcxLanes | None = None,
        goes_on: bool = False,
    ) -> None:
        names = list(range(len(lanes[0]) - bool(aggregator)))
        descriptors = [
            [-1 if each is None else each.detach() for each in streams] for streams in lanes
        ]
        self._mesh = _native.StreamsGroup(rank, descriptors, names, threads, one_hop, ucx)
        self._goes_on = goes_on
        if goes_on:
            self._mesh.keep_results()
        self._threads = threads
        self._carrier = "tcp" if ucx is None else "ucx"
        super().__init__(self._mesh, rank, names, "streams", aggregator)

    @property
    def results(self) -> _native.StreamsGroup:
        """The aggregator's results at this rank, if the ranks go on without it."""
        return self._mesh

    def leave_off(self) -> None:
        """Take no result any more. The streams stay open: others may need what is on its way."""
        self._failure = self._failure or "the ranks go on without their aggregator"
        self._mesh.leave_off()

    def silence(self) -> str:
        """Return since when the aggregator has acknowledged nothing; empty if it has."""
        if not self._mesh.waits_for_aggregator():
            return ""
        obstacle = self._mesh.obstacle()
        if not obstacle.startswith(_AGGREGATOR):
            return ""
        return f"the aggregator at {self._aggregator}: {obstacle.removeprefix(_AGGREGATOR)}"

    def _lost(self, reason: str) -> AffluxError:
        # Of ranks that have left after the last call nothing is missing.
        if self._goes_on and reason.startswith(_AGGREGATOR):
            return self._aggregator_lost(reason)
        return super()._lost(reason)

    def statistics(self) -> dict[str, Any]:
        """Return counts since the worker was made, and what carries the streams. Any thread."""
        return {"threads": self._threads, "carrier": self._carrier, **self._mesh.statistics()}
