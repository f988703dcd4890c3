"""A rank's end of a group of which hosts have several ranks."""

import socket
from collections.abc import Sequence
from typing import Any

from afflux_drivers import _native
from afflux_drivers.collectives.worker import GroupWorker
from afflux_drivers.shared.worker import SharedWorker

__all__ = ["HostsWorker", "rails"]


def rails(hosts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the ranks that have streams to each other: all first ones, all second ones, and so on.

    Args:
        hosts: The ranks of each host.
    """
    return [list(ranks) for ranks in zip(*hosts, strict=False)]


class HostsWorker(GroupWorker):
    """One rank of one group; see `GroupWorker`. It has all-reduces and barriers alone.

    Args:
        rank: Own rank.
        hosts: The ranks of each host.
        shared: The memory of the own host's ranks, which belongs to the worker from now on; None if
            this rank is alone there.
        lanes: Connected sockets, non-blocking, by lane and host, to the ranks of the own rail; None
            for the own host. They belong to the worker from now on. Empty for a rank that is in no
            rail.
        threads: How many move the lanes, the calling one among them.
        one_hop: As for `StreamsWorker`.
        rounds: Whether each host rounds its sums of floats.
        aggregator: As for `StreamsWorker`.
        ucx: As for `StreamsWorker`.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[Sequence[int]],
        shared: SharedWorker | None,
        lanes: Sequence[Sequence[socket.socket | None]],
        threads: int,
        one_hop: int,
        rounds: bool,
        aggregator: str = "",
        ucx: _native.UcxLanes | None = None,
    ) -> None:
        host = next(number for number, ranks in enumerate(hosts) if rank in ranks)
        descriptors = [
            [-1 if each is None else each.detach() for each in streams] for streams in lanes
        ]
        self._shared = shared
        self._hosts = _native.HostsGroup(
            [list(ranks) for ranks in hosts],
            host,
            list(hosts[host]).index(rank),
            None if shared is None else shared.native,
            descriptors,
            threads,
            rounds,
            one_hop,
            ucx,
        )
        self._threads = threads
        self._carrier = "tcp" if ucx is None else "ucx"
        ranks = range(sum(map(len, hosts)))
        super().__init__(self._hosts, rank, ranks, "memory and streams", aggregator)

    def statistics(self) -> dict[str, Any]:
        """Return counts since the worker was made, and what carries the streams. Any thread."""
        return {"threads": self._threads, "carrier": self._carrier, **self._hosts.statistics()}

    def close(self) -> None:
        """Leave the group, and the host's memory."""
        super().close()
        if self._shared is not None:
            self._shared.close()
