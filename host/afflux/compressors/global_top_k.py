"""gTop-k as compressors: the largest elements of the sum, of which nothing is lost."""

import torch
import torch.distributed as dist

from afflux.compressors.gtopk import Taken, take_global_top_k, way_of
from afflux.compressors.gtopk_tree import take_by_tree
from afflux.compressors.selection import Bounds
from afflux.schemes.compressor import Compressor, check_flat
from afflux.schemes.density import checked_density, share_of

__all__ = ["GlobalTopK", "TreeTopK"]


class GlobalTopK(Compressor):
    """The largest elements of the ranks' sum (see `gtopk`): biased; exact in what it leaves.

    Args:
        density: Share of the elements that is taken, above 0 and at most 1; at least one element.

    Raises:
        ValueError: The density is out of range.
    """

    word = "gtopk"
    on_devices = True

    def __init__(self, density: float = 0.001) -> None:
        self.density = checked_density(density)
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
        taken = self._taken(tensor, share_of(self.density, len(tensor)), group)
        average.zero_()
        average[taken.places] = (taken.sums / dist.get_world_size(group)).to(average.device)
        return taken.places

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`: a value for each element offered, and its place or half of that."""
        count = share_of(self.density, elements)
        return (6.0 if way_of(elements, count, ranks) == "lists" else 8.0) * count

    def _taken(self, tensor: torch.Tensor, count: int, group: dist.ProcessGroup | None) -> Taken:
        return take_global_top_k(tensor, count, group, bounds=self._bounds)


class TreeTopK(GlobalTopK):
    """Elements of the ranks' sum that are left at the root of a tree (see `gtopk_tree`).

    As `GlobalTopK`, but for messages from rank to rank, as the paper has them. Which elements it
    takes depends on the ranks' numbers: each merge drops what is not among the largest there.
    """

    word = "gtopktree"

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`: place and value of each element offered, once up and once down."""
        return 2 * 8.0 * share_of(self.density, elements)

    def _taken(self, tensor: torch.Tensor, count: int, group: dist.ProcessGroup | None) -> Taken:
        return take_by_tree(tensor, count, group, bounds=self._bounds)
