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
from afflux_hdl.contract import wire

__all__ = ["HostsReducer", "StreamsReducer"]

_COLLECTIVES = ("all_reduce", "barrier")


class HostsReducer(DirectReducer):
    """A `Reducer` of a group of which hosts have several ranks: for all-reduces.

    Args:
        worker: This rank's end.
        url: AFFLUX_AGGREGATOR.
        topology: Which way the sums take, and why.
    """

    # A host that vanishes ends no connection for a while; the group's links tell.
    notices_ends = False

    def __init__(self, worker: HostsWorker, url: AggregatorUrl, topology: Topology) -> None:
        super().__init__(worker, url, "streams", topology)
        self._hosts = worker

    def plan(self, asked: Asked) -> GroupCall | None:
        """Return the call with its fingerprint, of an all-reduce or a barrier."""
        return super().plan(asked) if asked.collective in _COLLECTIVES else None

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory: not all ranks can reach this one's."""
        return torch.zeros(elements, dtype=dtype)

    def statistics(self) -> dict[str, Any]:
        """Return the worker's counts."""
        return {"lanes": wire.LANES_MAX, **self._hosts.statistics()}


class StreamsReducer(DirectReducer):
    """A `Reducer` over a mesh of streams.

    Args:
        worker: This rank's end.
        url: AFFLUX_AGGREGATOR.
        topology: Which way the sums take, and why.
    """

    # A host that vanishes ends no connection for a while; the group's links tell.
    notices_ends = False

    def __init__(self, worker: StreamsWorker, url: AggregatorUrl, topology: Topology) -> None:
        super().__init__(worker, url, "streams", topology)
        self._mesh = worker

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory: no other rank reaches this one's."""
        return torch.zeros(elements, dtype=dtype)

    def statistics(self) -> dict[str, Any]:
        """Return the worker's counts."""
        return {"lanes": wire.LANES_MAX, **self._mesh.statistics()}
