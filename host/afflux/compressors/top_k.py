"""Each rank's own largest elements, summed as a sparse tensor."""

import torch
import torch.distributed as dist

from afflux.compressors.selection import largest
from afflux.schemes.compressor import Compressor, check_flat
from afflux.schemes.density import checked_density, share_of
from afflux_drivers.rows import list_words

__all__ = ["TopK"]

_ELEMENT_BYTES = 4
_WORD_BYTES = 4


class TopK(Compressor):
    """Each rank's k largest elements by absolute value; the average is over all that any gave.

    A. Aji and K. Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017,
    with the exact k largest. Their sums are the group's sum of a sparse tensor, which agrees on the
    union of the ranks' places, and adds up the values of these: what comes back has up to as many
    elements as all ranks together gave, and `gtopk` no more than each gave.

    * Bias: biased; with feedback nothing is lost but the rounding of the group's sum.
    * Volume: for each element of the union its value, and a list of the rank's own places, some
      ten bits for each (`docs/schemes.md`, "Sparse tensors").
    * Cost: one pass over the tensor to select, and a search among the union's places.

    Args:
        density: Share of the elements, above 0 and at most 1; at least one element.

    Raises:
        ValueError: The density is out of range.
    """

    word = "topk"

    def __init__(self, density: float = 0.001) -> None:
        self.density = checked_density(density)

    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> torch.Tensor:
        """See `Compressor`. Returns where this rank has given.

        Raises:
            FloatingPointError: A sum is not finite; no tensor has changed.
        """
        check_flat(tensor, average)
        if len(tensor) == 0:
            return torch.zeros(0, dtype=torch.int64)
        places = largest(tensor, share_of(self.density, len(tensor)))
        offers = torch.sparse_coo_tensor(
            places.unsqueeze(0),
            tensor[places],
            tensor.shape,
            is_coalesced=True,
            check_invariants=False,
        )
        dist.all_reduce(offers, group=group)
        # Another backend than "afflux" may leave it otherwise.
        offers = offers.coalesce()
        sums = offers.values()
        # The same at all ranks, so all of them raise.
        if not sums.isfinite().all():
            raise FloatingPointError("a sum of the ranks' largest elements is not finite")
        average.zero_()
        average[offers.indices()[0]] = sums / dist.get_world_size(group)
        tensor[places] = 0.0
        return places

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`: the most, if no two ranks give the same element; and its own places."""
        if elements == 0:
            return 0.0
        count = share_of(self.density, elements)
        union = min(elements, ranks * count)
        return float(union * _ELEMENT_BYTES + list_words(count, elements) * _WORD_BYTES)
