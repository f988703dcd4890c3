"""Collectives of ranks on several hosts, over streams between each two of them."""

from typing import Any

import torch

from afflux.group.call.collectives import Asked
from afflux.group.reducers.direct_reducer import DirectReducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers.collectives.call import GroupCall
from afflux_drivers.hosts.worker import HostsWorker
from afflux_drivers.streams.worker import StreamsWorker

__all__ = ["StreamsReducer"]

_BY_HOST = ("all_reduce", "barrier")
"""The collectives of groups of which hosts have several ranks."""


class StreamsReducer(DirectReducer):
    """A `Reducer` over streams between the ranks, or between those of different hosts.

    Args:
        worker: This rank's end.
        url: AFFLUX_AGGREGATOR.
        topology: Which way the sums take, and why.
    """

    # A host that vanishes ends no connection for a while; the group's links tell.
    notices_ends = False

    def __init__(
        self, worker: StreamsWorker | HostsWorker, url: AggregatorUrl, topology: Topology
    ) -> None:
        super().__init__(worker, url, "streams", topology)
        self._streams = worker

    def plan(self, asked: Asked) -> GroupCall | None:
        """Return the call with its fingerprint; None for what does not go over streams."""
        if self.topology.by_host and asked.collective not in _BY_HOST:
            return None
        return super().plan(asked)

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory: not all ranks can reach this one's."""
        return torch.zeros(elements, dtype=dtype)

    def statistics(self) -> dict[str, Any]:
        """Return the worker's counts."""
        return {"lanes": 0, **self._streams.statistics()}
