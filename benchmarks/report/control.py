"""The agreement of a benchmark's ranks, past the groups that are measured."""

from typing import Any

import torch
import torch.distributed as dist

__all__ = ["Control"]


class Control:
    """All ranks of a run.

    Attributes:
        control: A group of all ranks that is not measured.
        rank, ranks: Of this process, and how many there are.
    """

    def __init__(self) -> None:
        self.control: Any = dist.group.WORLD
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()

    def agree(self, value: float, op: Any = dist.ReduceOp.MAX) -> float:
        """Return what all ranks' values are together."""
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, op, group=self.control)
        return tensor.item()

    def first_reason(self, reason: str) -> str:
        """Return the first rank's reason that is not empty."""
        reasons: list[str] = [""] * self.ranks
        dist.all_gather_object(reasons, reason, group=self.control)
        return next((each for each in reasons if each), "")
