"""What a sparse sum needs of a group: dense collectives."""

from typing import Protocol

import torch

__all__ = ["Sums"]


class Sums(Protocol):
    """Dense collectives of one group, at one rank; they block.

    Attributes:
        rank: Own rank.
        size: Ranks.
    """

    rank: int
    size: int

    def all_reduce(self, tensor: torch.Tensor, reduction: str) -> None:
        """Replace a contiguous tensor, at every rank as large, by the ranks' "sum" or "avg"."""

    def capacity(self, elements: int) -> int:
        """Return how many elements to sum where there are so many: the rest are zeros.

        Sizes that differ little are then the same, and what the group has learnt of one holds.
        """

    def all_gather(self, tensor: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Return the ranks' tensors one after the other.

        Args:
            tensor: Flat, int32.
            counts: Elements of each rank's.
        """
