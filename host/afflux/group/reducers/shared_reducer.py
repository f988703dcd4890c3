"""Collectives of the ranks of one host, through memory that they share."""

from typing import Any

import torch

from afflux.group.reducers.direct_reducer import DirectReducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers.shared.worker import SharedWorker

__all__ = ["SharedMemoryReducer"]


class SharedMemoryReducer(DirectReducer):
    """A `Reducer` over a segment of memory that the ranks of one host share.

    The segment is freed when the last rank has left.

    Args:
        worker: This rank's part of the segment.
        url: AFFLUX_AGGREGATOR.
    """

    notices_ends = True

    def __init__(self, worker: SharedWorker, url: AggregatorUrl) -> None:
        super().__init__(worker, url, "shm", Topology("memory", "all ranks share it"))
        self._memory = worker

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return memory of the segment."""
        array = self._memory.allocate(max(elements, 1) * dtype.itemsize)
        return torch.from_numpy(array).view(dtype)[:elements]

    def statistics(self) -> dict[str, Any]:
        """Return the worker's counts."""
        return {"lanes": 0, **self._memory.statistics()}
