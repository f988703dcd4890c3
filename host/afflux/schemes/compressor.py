"""The interface of compressors: each takes a part of the ranks' tensors, and averages that part.

Every compressor removes from a rank's tensor exactly what it has given of it. So whoever keeps the
rest, and adds it to the next tensor, has error feedback (Seide et al., "1-Bit Stochastic Gradient
Descent", Interspeech 2014), whichever compressor it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist

__all__ = ["Compressor", "DrawnSelector", "SchemePart", "Selector", "check_flat"]


class SchemePart:
    """A part of a scheme.

    Its numbers, words and parts must be the same at all ranks; other attributes may differ.
    """

    def text(self) -> str:
        """Return what must be the same at all ranks."""
        values = {name.lstrip("_"): value for name, value in sorted(vars(self).items())}
        shown = [
            f"{name}={value.text() if isinstance(value, SchemePart) else value}"
            for name, value in values.items()
            if isinstance(value, (SchemePart, bool, int, float, str))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def state_dict(self) -> dict[str, Any]:
        """Return what changes from tensor to tensor, and is the same at all ranks."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` has returned."""
        if state:
            raise ValueError(f"{type(self).__name__} has no state, but {sorted(state)} were saved")


class Compressor(SchemePart, ABC):
    """A way to average less than everything. All ranks have an equal one, for the same tensors.

    Attributes:
        word: Its name in AFFLUX_SCHEME.
        biased: Whether the average of what is given differs, in expectation, from the tensors'.
            Then what is left has to be kept, or training goes astray.
        on_devices: Whether it takes tensors on any of torch's devices; if not, only on the CPU.
        density: Share of the elements that it gives, above 0 and at most 1; None if it gives all,
            or as many as their values have it. May be changed between two tensors, at all ranks.
    """

    word: ClassVar[str]
    biased: ClassVar[bool] = True
    on_devices: ClassVar[bool] = False
    density: float | None = None

    @abstractmethod
    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> torch.Tensor | None:
        """Take a part of each rank's tensor, and average it over the ranks; a collective.

        Args:
            tensor: Flat float32. Afterwards it has what this rank has not given. If the call fails
                it is as it was.
            average: Flat float32, of as many elements, all of which are overwritten: by the average
                of what was given, the same at all ranks, and zeros.
            group: None for the default group.

        Returns:
            Where elements were taken, ascending, int64; None if everywhere.

        Raises:
            ValueError: The tensors are not as they have to be.
            FloatingPointError: An element that matters is not finite, at any rank. A compressor
                that gives elements as they are may instead pass it on: then the average is not
                finite there, at all ranks, and nothing of it is left in a tensor.
        """

    @abstractmethod
    def volume(self, elements: int, ranks: int) -> float:
        """Return how many bytes a rank sends for a tensor, as payload through an aggregator.

        Where that depends on the tensors' values it is the most, or what is said.
        """


class Selector(SchemePart, ABC):
    """Which elements a rank gives, whole; the others it keeps. No communication.

    Attributes:
        word: Its name in AFFLUX_SCHEME.
        biased: As for a compressor.
        density: As for a compressor.
    """

    word: ClassVar[str]
    biased: ClassVar[bool] = True
    density: float | None = None

    @abstractmethod
    def move(self, tensor: torch.Tensor, offer: torch.Tensor) -> torch.Tensor:
        """Move elements to where the offer is summed.

        Args:
            tensor: Flat float32. Elements that are moved become zero.
            offer: Zeros, as many; it receives the elements that are moved.

        Returns:
            Their places, ascending, int64.
        """


class DrawnSelector(Selector):
    """A selector that goes by no values: all ranks give the same places.

    So only these elements are summed, one after the other, and their places are known.
    """

    @abstractmethod
    def draw(self, elements: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Draw places; at all ranks the same, if all have drawn as often for the same sizes.

        Returns:
            Places, ascending, int64; and float32 by which their elements are multiplied, so that
            the average is not biased, or None. With factors nothing else is kept.
        """

    def move(self, tensor: torch.Tensor, offer: torch.Tensor) -> torch.Tensor:
        """See `Selector`; without factors."""
        places, _ = self.draw(len(tensor))
        offer[places] = tensor[places]
        tensor[places] = 0.0
        return places


def check_flat(tensor: torch.Tensor, average: torch.Tensor) -> None:
    """Check what every compressor is given.

    Raises:
        ValueError: The tensors are not flat contiguous float32 of one size.
    """
    for name, each in (("tensor", tensor), ("average", average)):
        if each.dim() != 1 or each.dtype != torch.float32 or not each.is_contiguous():
            raise ValueError(
                f"the {name} is {each.dtype} {tuple(each.shape)} with strides {each.stride()}, not "
                "flat contiguous float32"
            )
    if len(tensor) != len(average):
        raise ValueError(f"the tensor has {len(tensor)} elements, the average {len(average)}")
