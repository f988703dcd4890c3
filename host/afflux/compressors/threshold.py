"""Elements beyond a fixed bound."""

import math

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
    * Cost: three passes over the tensor.

    Args:
        bound: Above 0. What is no number counts as beyond it, so that it comes to light.

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
        places = (tensor.abs() < self._bound).logical_not_().nonzero().view(-1)
        offer[places] = tensor[places]
        tensor[places] = 0.0
        return places
