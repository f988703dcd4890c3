"""Elements drawn at random, the same at all ranks."""

from collections.abc import Mapping
from typing import Any

import torch

from afflux.schemes.compressor import DrawnSelector
from afflux.schemes.density import checked_density, share_of

__all__ = ["RandomK"]

_SEED_BITS = 31
_DRAW_BITS = 32
_DRAWS = 1 << _DRAW_BITS


class RandomK(DrawnSelector):
    """One element at random of each of k equal parts of the tensor.

    After S. Stich et al., "Sparsified SGD with Memory", NeurIPS 2018 (rand-k), who draw any k
    elements. With one from each part every element is drawn with the same probability, none twice,
    and the draw costs k steps. The ranks draw alike, from a seed that they share and the number of
    draws so far, so the places are not sent.

    * Bias: as it is, biased, and elements that are not drawn are kept. `scaled` makes it unbiased:
      what is drawn counts for the elements of its part, and nothing is kept. Its variance is that
      of one element for the sum of k-th parts: for small densities use the first.
    * Volume: the values alone, one after the other: 4 bytes for each, and less in another form.
    * Cost: k random numbers, and k elements out of their places and back.

    Args:
        density: Share of the elements, above 0 and at most 1; at least one element.
        seed: The same at all ranks; from 0, of 31 bits.
        scaled: Whether the average is unbiased, without feedback.

    Raises:
        ValueError: The density or the seed is out of range.
    """

    word = "randomk"

    def __init__(self, density: float = 0.01, seed: int = 0, scaled: bool = False) -> None:
        self.density = checked_density(density)
        self._scaled = scaled
        if not 0 <= seed < 1 << _SEED_BITS:
            raise ValueError(f"seed is {seed}: it must be from 0 to {(1 << _SEED_BITS) - 1}")
        self._seed = seed
        self._draws = 0

    @property
    def biased(self) -> bool:  # type: ignore[override]
        """Unless it is scaled."""
        return not self._scaled

    def state_dict(self) -> dict[str, Any]:
        """See `SchemePart`: the number of draws."""
        return {"draws": self._draws}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `SchemePart`."""
        self._draws = state["draws"]

    def draw(self, elements: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `DrawnSelector`."""
        count = share_of(self.density, elements)
        if count == 0:
            return torch.zeros(0, dtype=torch.int64), None
        bounds = torch.arange(count + 1) * elements // count
        sizes = bounds.diff()
        # Of the number of this draw, so that it can be told, and saved.
        source = torch.Generator().manual_seed(self._seed << _DRAW_BITS | self._draws % _DRAWS)
        self._draws += 1
        drawn = (torch.rand(count, generator=source, dtype=torch.float64) * sizes).long()
        places = bounds[:-1] + torch.minimum(drawn, sizes - 1)
        return places, sizes.to(torch.float32) if self._scaled else None
