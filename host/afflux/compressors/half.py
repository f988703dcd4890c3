"""Elements in 16 bits of floating point: fp16 and bf16."""

import math
from typing import ClassVar

import torch
import torch.distributed as dist

from afflux.schemes.compressor import Compressor, check_flat
from afflux_drivers.narrow import INFINITE, from_halves, to_halves

__all__ = ["BFloat16", "Float16"]


class _Half(Compressor):
    """All elements, rounded to nearest, ties to even, and summed in a narrow type.

    * Bias: biased, as rounding to nearest is; the remainder of an element stays, exactly. The group
      rounds its sum once (by Gloo: once for each rank after the first), the same at all
      ranks: that is lost, at most half a unit in the last place of the sum.
    * Volume: 2 bytes for each element.
    * Cost: two passes over the tensor, of vector instructions.

    P. Micikevicius et al., "Mixed Precision Training", ICLR 2018.
    """

    _dtype: ClassVar[torch.dtype]
    _most: ClassVar[int]
    """Float32 bits of the largest that is taken: of more the rest might not be exact."""

    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> None:
        """See `Compressor`.

        An element that could make the sum overflow is given only as far as it cannot; the rest of
        it waits in the tensor.

        Raises:
            FloatingPointError: A rank's element is not finite, or larger than any that waiting
                makes sense for; at all ranks, and no tensor has changed.
        """
        check_flat(tensor, average)
        if len(tensor) == 0:
            return
        ranks = dist.get_world_size(group)
        # An integer, so that what it leaves is exact.
        limit = _floor(math.floor(torch.finfo(self._dtype).max / ranks), self._dtype)
        brain = self._dtype == torch.bfloat16
        elements = tensor.numpy()
        # They have room in what is to be overwritten anyway: new memory would cost more than this.
        offer = average.view(self._dtype)[len(average) :]
        halves = offer.view(torch.int16).numpy()
        if to_halves(elements, brain, limit, halves) > self._most:
            # All see it, as no other sum is NaN.
            offer[0] = math.nan
        dist.all_reduce(offer, group=group)
        if offer[0].isnan():
            raise FloatingPointError(
                "a rank's tensor has an element that is NaN, infinite, or too large for "
                f"{self.word}"
            )
        from_halves(halves, brain, limit, ranks, elements, average.numpy())

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`."""
        return 2.0 * elements


class Float16(_Half):
    """All elements as float16: 11 bits, up to 65504 for the sum of the ranks."""

    __doc__ = f"{__doc__}\n{_Half.__doc__}"
    word = "fp16"
    _dtype = torch.float16
    _most = 0x4B800000  # 2**24


class BFloat16(_Half):
    """All elements as bfloat16: 8 bits, with float32's range."""

    __doc__ = f"{__doc__}\n{_Half.__doc__}"
    word = "bf16"
    _dtype = torch.bfloat16
    _most = INFINITE - 1


def _floor(number: float, dtype: torch.dtype) -> float:
    """Return the largest number of a type that is not above a positive one."""
    rounded = float(torch.tensor(number, dtype=torch.float64).to(dtype))
    if rounded <= number:
        return rounded
    return float(torch.nextafter(torch.tensor(rounded, dtype=dtype), torch.zeros((), dtype=dtype)))
