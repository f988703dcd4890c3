"""The interface of a group to a sparse sum: dense collectives, and how their bytes travel."""

from enum import StrEnum
from typing import Protocol

import torch

__all__ = ["Sums", "Way"]


class Way(StrEnum):
    """The carrier of a group's collectives of one kind."""

    STREAMS = "streams"
    """The ranks themselves, each of which sums a share of each tensor."""
    AGGREGATOR = "aggregator"
    """One that has a port of its own, or several that share the columns."""
    MEMORY = "memory"
    """Memory that the ranks share."""
    GLOO = "Gloo"
    """Gloo, to which zeros are numbers as others."""


class Sums(Protocol):
    """Dense collectives of one group, at one rank; they block.

    Attributes:
        rank: Own rank.
        size: Ranks.
        columns_shared: Whether several aggregators, or ranks, each sum a share of a tensor.
    """

    rank: int
    size: int
    columns_shared: bool

    def way(self, dtype: torch.dtype, reduction: str) -> Way:
        """Return what carries sums of such tensors."""

    def all_reduce(self, tensor: torch.Tensor, reduction: str) -> None:
        """Replace a contiguous tensor, at every rank as large, by the ranks' "sum" or "avg"."""

    def capacity(self, elements: int, element_bytes: int = 4) -> int:
        """Return how many elements to sum where there are so many: the rest are zeros.

        Sizes that differ little are then the same, and the group's experience with one holds.
        """

    def all_gather(self, tensor: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Return the ranks' tensors one after the other.

        Args:
            tensor: Flat, int32.
            counts: Elements of each rank's.
        """
