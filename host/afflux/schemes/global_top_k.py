"""gTop-k as a compressor: the largest elements of the sum, of which nothing is lost."""

import math

import torch
import torch.distributed as dist

from afflux.schemes.compressor import Compressor, check_flat
from afflux.schemes.gtopk import take_global_top_k
from afflux.schemes.selection import Bounds

__all__ = ["GlobalTopK"]


class GlobalTopK(Compressor):
    """The largest elements of the ranks' sum (see `gtopk`): biased; exact in what it leaves.

    Args:
        density: Share of the elements that is taken, above 0 and at most 1; at least one element.

    Raises:
        ValueError: The density is out of range.
    """

    word = "gtopk"

    def __init__(self, density: float = 0.001) -> None:
        if not 0.0 < density <= 1.0:
            raise ValueError(f"density is {density}: it must be above 0 and at most 1")
        self.density = density
        self._bounds = Bounds()

    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> torch.Tensor:
        """See `Compressor`. Returns where the sum was taken, whether this rank had offered or not.

        Raises:
            FloatingPointError: As for `take_global_top_k`.
        """
        check_flat(tensor, average)
        if len(tensor) == 0:
            return torch.zeros(0, dtype=torch.int64)
        taken = take_global_top_k(tensor, self._count(len(tensor)), group, bounds=self._bounds)
        average.zero_()
        average[taken.places] = taken.sums / dist.get_world_size(group)
        return taken.places

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`: a number of four bytes and a sum of four for each element offered."""
        return 8.0 * self._count(elements)

    def _count(self, elements: int) -> int:
        assert self.density is not None
        return max(1, math.ceil(self.density * elements))
