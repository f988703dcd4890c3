"""Elements beyond a fixed bound."""

import math

import numpy as np
import torch

from afflux.schemes.compressor import Selector

__all__ = ["Threshold"]


class Threshold(Selector):
    """The elements whose absolute value is at least a fixed bound.

    After N. Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
    Interspeech 2015; he sends the bound in an element's place, here it goes whole.

    * Bias: biased; with feedback nothing is lost.
    * Volume: whatever reaches the bound. Blocks without such an element are not sent; elements that
      lie anywhere fill blocks with zeros, so that 1 in 64 of them makes nearly all blocks present.
    * Cost: four passes over the tensor, two of them over a byte for each element.

    Args:
        bound: Above 0. NaN counts as beyond it, so that it comes to light.

    Raises:
        ValueError: The bound is not above 0, or not finite.
    """

    word = "threshold"

    def __init__(self, bound: float = 0.001) -> None:
        if not 0.0 < bound < math.inf:
            raise ValueError(f"bound is {bound}: it must be above 0, and finite")
        self._bound = bound

    def move(self, tensor: torch.Tensor, offer: torch.Tensor) -> torch.Tensor:
        """See `Selector`."""
        # Several times as fast as torch's nonzero.
        elements = tensor.numpy()
        within = (elements < self._bound) & (elements > -self._bound)
        places = torch.from_numpy(np.flatnonzero(~within))
        offer[places] = tensor[places]
        tensor[places] = 0.0
        return places
