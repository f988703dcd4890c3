"""Elements drawn at random, the same at all ranks."""

import math

import torch

from afflux.schemes.compressor import DrawnSelector

__all__ = ["RandomK"]


class RandomK(DrawnSelector):
    """One element at random of each of k equal parts of the tensor.

    After S. Stich et al., "Sparsified SGD with Memory", NeurIPS 2018 (rand-k), who draw any k
    elements. With one from each part every element is drawn with the same probability, none twice,
    and the draw costs k steps. The ranks draw alike, from a seed that they share and the number of
    draws so far, so the places are not sent.

    * Bias: as it is, biased, and what is not drawn is kept. `scaled` makes it unbiased: what is
      drawn counts for the elements of its part, and nothing is kept. Its variance is that of one
      element for the sum of k-th parts: for small densities use the first.
    * Volume: the values alone, one after the other: 4 bytes for each, and less in another form.
    * Cost: k random numbers, and k elements out of their places and back.

    Args:
        density: Share of the elements, above 0 and at most 1; at least one element.
        seed: The same at all ranks.
        scaled: Whether the average is unbiased, without feedback.

    Raises:
        ValueError: The density is out of range.
    """

    word = "randomk"

    def __init__(self, density: float = 0.01, seed: int = 0, scaled: bool = False) -> None:
        if not 0.0 < density <= 1.0:
            raise ValueError(f"density is {density}: it must be above 0 and at most 1")
        self.density = density
        self._scaled = scaled
        self._source = torch.Generator().manual_seed(seed)

    @property
    def biased(self) -> bool:  # type: ignore[override]
        """Unless it is scaled."""
        return not self._scaled

    def draw(self, elements: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `DrawnSelector`."""
        assert self.density is not None
        count = min(elements, max(1, math.ceil(self.density * elements)))
        if count == 0:
            return torch.zeros(0, dtype=torch.int64), None
        bounds = torch.arange(count + 1) * elements // count
        sizes = bounds.diff()
        drawn = (torch.rand(count, generator=self._source, dtype=torch.float64) * sizes).long()
        places = bounds[:-1] + torch.minimum(drawn, sizes - 1)
        return places, sizes.to(torch.float32) if self._scaled else None
