"""Elements in 16 bits of floating point: fp16 and bf16."""

import math
from typing import ClassVar

import torch
import torch.distributed as dist

from afflux.schemes.compressor import Compressor, check_flat

__all__ = ["BFloat16", "Float16"]


class _Half(Compressor):
    """All elements, rounded to nearest, ties to even, and summed in a narrow type.

    * Bias: biased, as rounding to nearest is; what it leaves of an element stays, exactly. The
      group rounds its sum once (by Gloo: once for each rank after the first), the same at all
      ranks: that is lost, at most half a unit in the last place of the sum.
    * Volume: 2 bytes for each element by Gloo and in shared memory; 4 in packets, whose integers
      have 32 bits (`docs/protocol.md`, section 8.2): there `int8` with 12 bits is half as much.
    * Cost: four passes over the tensor.

    P. Micikevicius et al., "Mixed Precision Training", ICLR 2018.
    """

    _dtype: ClassVar[torch.dtype]
    _most: ClassVar[float]
    """What is larger is refused: there the rest of an element might not be exact."""

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
        least, most = (float(each) for each in tensor.aminmax())
        # Also if they are NaN.
        good = -self._most <= least and most <= self._most
        # An integer, so that what it leaves is exact.
        limit = _floor(math.floor(torch.finfo(self._dtype).max / ranks), self._dtype)
        torch.clamp(tensor, -limit, limit, out=average)
        offer = average.to(self._dtype)
        if good:
            average.copy_(offer)
            tensor.sub_(average)
        else:
            # What is finite at other ranks cannot make their sum so: all see this.
            offer[0] = math.nan
        try:
            dist.all_reduce(offer, group=group)
            if offer[0].isnan():
                raise FloatingPointError(
                    f"a rank's tensor has an element that is NaN, or beyond {self._most:g}"
                )
        except BaseException:
            if good:
                # Exact: it is what was there before.
                tensor.add_(average)
            raise
        average.copy_(offer)
        average.div_(ranks)

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`: as payload through an aggregator, as much as float32."""
        return 4.0 * elements


class Float16(_Half):
    """All elements as float16: 11 bits, up to 65504 for the sum of the ranks."""

    __doc__ = f"{__doc__}\n{_Half.__doc__}"
    word = "fp16"
    _dtype = torch.float16
    _most = 2.0**24


class BFloat16(_Half):
    """All elements as bfloat16: 8 bits, with float32's range."""

    __doc__ = f"{__doc__}\n{_Half.__doc__}"
    word = "bf16"
    _dtype = torch.bfloat16
    _most = torch.finfo(torch.float32).max


def _floor(number: float, dtype: torch.dtype) -> float:
    """Return the largest number of a type that is not above a positive one."""
    rounded = float(torch.tensor(number, dtype=torch.float64).to(dtype))
    if rounded <= number:
        return rounded
    return float(torch.nextafter(torch.tensor(rounded, dtype=dtype), torch.zeros((), dtype=dtype)))
