"""Elements as small integers with exponents that a block's elements share: int4, int8, int12."""

from typing import ClassVar

import torch
import torch.distributed as dist

from afflux.schemes.compressor import Compressor, check_flat
from afflux_drivers.narrow import TOO_LARGE, NarrowForm

__all__ = ["Int4", "Int8", "Int12"]

_WORD_BYTES = 4


class _FixedPoint(Compressor):
    """All elements as integers, several to a word of 32 bits, which the group adds up exactly.

    Dynamic fixed point (M. Courbariaux et al., "Training deep neural networks with low precision
    multiplications", ICLR 2015 workshop; as MLSL's quantised all-reduce has it), with integers that
    are summed as they are, not turned back at each hop. The ranks agree on the largest magnitude of
    each group of elements, of which all integers of the group are multiples of one power of two.

    * Bias: biased, as rounding to nearest is; the remainder of an element, at most half of that
      power, stays, exactly. Sums are exact; the average is rounded once to float32.
    * Volume: a word for as many elements as have room in it, with as many bits more as the sum of
      the ranks needs: int8 has 3 in a word at 2 to 4 ranks, 2 beyond; int4 6 at 2 ranks, 5 at 4,
      4 up to 18; int12 2 up to 16. Room beyond that makes multiples finer. Besides, a word for each
      block of 64. Blocks of zeros are not sent.
    * Cost: three passes over the tensor, of vector instructions, and a short sum before the sum.
    """

    _bits: ClassVar[int]

    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> None:
        """See `Compressor`.

        Raises:
            FloatingPointError: A rank's element is NaN, or at least 2 ** 127; at all ranks, and no
                tensor has changed.
        """
        check_flat(tensor, average)
        form = NarrowForm.of(self._bits, dist.get_world_size(group))
        elements = tensor.numpy()
        magnitudes = form.magnitudes(elements)
        dist.all_reduce(torch.from_numpy(magnitudes), dist.ReduceOp.MAX, group)
        if magnitudes.max(initial=0) >= TOO_LARGE:
            raise FloatingPointError("a rank's tensor has an element that is NaN, or beyond 2**127")
        # They have room in what is to be overwritten anyway: new memory would cost more than this.
        words = average.view(torch.int32)[len(average) - form.words(len(average)) :]
        form.pack(elements, magnitudes, words.numpy())
        dist.all_reduce(words, group=group)
        form.unpack(words.numpy(), magnitudes, elements, average.numpy())

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`."""
        form = NarrowForm.of(self._bits, ranks)
        return float(_WORD_BYTES * (form.words(elements) + form.groups(elements)))


class Int4(_FixedPoint):
    """All elements as integers of at least 4 bits."""

    __doc__ = f"{__doc__}\n{_FixedPoint.__doc__}"
    word = "int4"
    _bits = 4


class Int8(_FixedPoint):
    """All elements as integers of at least 8 bits."""

    __doc__ = f"{__doc__}\n{_FixedPoint.__doc__}"
    word = "int8"
    _bits = 8


class Int12(_FixedPoint):
    """All elements as integers of at least 12 bits, up to 16 ranks."""

    __doc__ = f"{__doc__}\n{_FixedPoint.__doc__}"
    word = "int12"
    _bits = 12
