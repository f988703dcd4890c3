"""A group's collectives among threads of the test's process, for sums of sparse tensors."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from afflux.sparse.sums import Sums, Way

WAIT_S = 20.0


class LocalGroup:
    """The state that the ranks of a group share.

    Args:
        size: Ranks.
        way: The stated carrier of their sums.
    """

    def __init__(self, size: int, way: Way = Way.MEMORY) -> None:
        self.size = size
        self.way = way
        self.barrier = threading.Barrier(size, timeout=WAIT_S)
        self.brought: list[Any] = [None] * size
        self.log: list[tuple[str, int]] = []

    def run(self, body: Callable[[Sums], Any]) -> list[Any]:
        """Return what the body returns at each rank."""
        with ThreadPoolExecutor(self.size) as threads:
            started = [threads.submit(body, LocalSums(self, rank)) for rank in range(self.size)]
            return [each.result() for each in started]


class LocalSums(Sums):
    """The collectives of one rank."""

    def __init__(self, group: LocalGroup, rank: int) -> None:
        self.rank = rank
        self.size = group.size
        self.columns_shared = group.way is Way.STREAMS
        self._group = group

    def way(self, dtype: torch.dtype, reduction: str) -> Way:
        return self._group.way

    def capacity(self, elements: int, element_bytes: int = 4) -> int:
        return elements + 3

    def all_reduce(self, tensor: torch.Tensor, reduction: str) -> None:
        of_ranks = self._exchanged("all_reduce", tensor.clone())
        total = of_ranks[0]
        for each in of_ranks[1:]:
            total = total + each
        tensor.copy_(total / self.size if reduction == "avg" else total)

    def all_gather(self, tensor: torch.Tensor, counts: list[int]) -> torch.Tensor:
        of_ranks = self._exchanged("all_gather", tensor.clone())
        assert [len(each) for each in of_ranks] == counts
        return torch.cat(of_ranks)

    def _exchanged(self, step: str, tensor: torch.Tensor) -> list[torch.Tensor]:
        group = self._group
        group.brought[self.rank] = (step, tensor)
        group.barrier.wait()
        found = list(group.brought)
        if self.rank == 0:
            group.log.append((step, tensor.numel()))
        group.barrier.wait()
        assert {name for name, _ in found} == {step}
        assert step == "all_gather" or len({each.shape for _, each in found}) == 1
        return [each for _, each in found]
