"""A selector, and how what it selects is summed: block top-k in int8, for example."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from afflux.schemes.compressor import Compressor, DrawnSelector, Selector, check_flat
from afflux.schemes.density import share_of

__all__ = ["Selected"]


class Selected(Compressor):
    """The elements that a selector takes, averaged by a compressor for whole tensors.

    The remainders of the selector, and of the compressor after it, stay in the tensor. The group
    sums a tensor with zeros in it, of which blocks that are zero at a rank are not sent; or only
    the elements, if all ranks know which they are.

    Args:
        selector: Which elements.
        values: In which form they are summed; not one that selects, too.

    Raises:
        ValueError: The second one selects elements itself.
    """

    def __init__(self, selector: Selector, values: Compressor) -> None:
        if values.density is not None:
            raise ValueError(
                f"{values.word} selects elements itself, and has a form of its own for them: it "
                f"cannot follow {selector.word}"
            )
        self._selector = selector
        self._values = values
        # Zeros, but during a call: new memory for each would cost as much as the selection.
        self._offer = torch.zeros(0)

    @property
    def word(self) -> str:  # type: ignore[override]
        """Both words."""
        return f"{self._selector.word} + {self._values.word}"

    @property
    def density(self) -> float | None:
        """Of the selector."""
        return self._selector.density

    @density.setter
    def density(self, density: float | None) -> None:
        self._selector.density = density

    @property
    def biased(self) -> bool:  # type: ignore[override]
        """Whether either is."""
        return self._selector.biased or self._values.biased

    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> torch.Tensor | None:
        """See `Compressor`. It keeps memory for one more tensor, unless places are drawn."""
        check_flat(tensor, average)
        if isinstance(self._selector, DrawnSelector):
            return self._take_drawn(self._selector, tensor, average, group)
        if len(self._offer) < len(tensor):
            self._offer = torch.zeros_like(tensor)
        offer = self._offer[: len(tensor)]
        places = self._selector.move(tensor, offer)
        try:
            self._values.take(offer, average, group)
        finally:
            # Selected elements had become zero, so this is exact; also if the sum has failed.
            tensor[places] = offer[places]
            offer[places] = 0.0
        return places

    def _take_drawn(
        self,
        selector: DrawnSelector,
        tensor: torch.Tensor,
        average: torch.Tensor,
        group: dist.ProcessGroup | None,
    ) -> torch.Tensor:
        places, factors = selector.draw(len(tensor))
        offer = tensor[places]
        if factors is not None:
            offer.mul_(factors)
        of_offers = torch.empty_like(offer)
        self._values.take(offer, of_offers, group)
        average.zero_()
        average[places] = of_offers
        if factors is not None:
            tensor.zero_()
            offer.div_(factors)
        tensor[places] = offer
        return places

    def state_dict(self) -> dict[str, Any]:
        """See `SchemePart`: that of both."""
        return {"selector": self._selector.state_dict(), "values": self._values.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `SchemePart`."""
        self._selector.load_state_dict(state["selector"])
        self._values.load_state_dict(state["values"])

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`: the share of the elements, if they fill their blocks."""
        if isinstance(self._selector, DrawnSelector):
            return self._values.volume(share_of(self.density, elements), ranks)
        return self._values.volume(elements, ranks) * (self.density or 1.0)
