"""A selector, and how what it selects is summed: block top-k in int8, for example."""

import torch
import torch.distributed as dist

from afflux.schemes.compressor import Compressor, Selector, check_flat

__all__ = ["Selected"]


class Selected(Compressor):
    """The elements that a selector takes, averaged by a compressor for whole tensors.

    What the selector leaves, and what the compressor leaves of the rest, stays in the tensor. The
    group sums a tensor with zeros in it, of which blocks that are zero at a rank are not sent.

    Args:
        selector: Which elements.
        values: In which form they are summed; not one that selects, too.

    Raises:
        ValueError: The second one selects elements itself.
    """

    word = "selected"

    def __init__(self, selector: Selector, values: Compressor) -> None:
        if values.density is not None:
            raise ValueError(
                f"{values.word} selects elements itself, and has a form of its own for them: it "
                f"cannot follow {selector.word}"
            )
        self._selector = selector
        self._values = values

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
        """See `Compressor`. It needs memory for one more tensor."""
        check_flat(tensor, average)
        offer = torch.zeros_like(tensor)
        places = self._selector.move(tensor, offer)
        try:
            self._values.take(offer, average, group)
        finally:
            # What is selected had become zero, so this is exact; also if the sum has failed.
            tensor[places] = offer[places]
        return places

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`: the share of the elements, if they fill their blocks."""
        return self._values.volume(elements, ranks) * (self.density or 1.0)
