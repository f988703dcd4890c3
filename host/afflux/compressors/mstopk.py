"""About the largest elements, by MSTopK's search."""

import torch

from afflux.compressors.mstopk_search import PASSES, mstopk
from afflux.schemes.compressor import Selector
from afflux.schemes.density import checked_density, share_of

__all__ = ["MSTopK"]


class MSTopK(Selector):
    """About each rank's k largest elements by absolute value (see `mstopk_search`).

    S. Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud
    Clusters", MLSys 2021.

    * Bias: biased; with feedback nothing is lost.
    * Volume: at blocks of the wire, nearly everything from a density of some 1/64 on, if the
      elements are at random places; the group does not send blocks that are zero.
    * Cost: so many passes over the tensor; on a CPU an exact selection is one.

    Args:
        density: Share of the elements, above 0 and at most 1; at least one element.
        passes: How many thresholds are tried.

    Raises:
        ValueError: A number is out of its range.
    """

    word = "mstopk"

    def __init__(self, density: float = 0.001, passes: int = PASSES) -> None:
        if passes < 1:
            raise ValueError(f"passes is {passes}: it must be at least 1")
        self.density = checked_density(density)
        self._passes = passes

    def move(self, tensor: torch.Tensor, offer: torch.Tensor) -> torch.Tensor:
        """See `Selector`. Of a tensor with an element that is not finite any may be taken.

        Then that element is among them, so that it comes to light.
        """
        if len(tensor) == 0:
            return torch.zeros(0, dtype=torch.int64)
        finite = tensor.isfinite()
        if finite.all():
            count = share_of(self.density, len(tensor))
            places = mstopk(tensor, count, passes=self._passes)
        else:
            places = finite.logical_not().nonzero().view(-1)
        offer[places] = tensor[places]
        tensor[places] = 0.0
        return places
