"""Block floating point: exponents, integers, sums (section 8.2 of the protocol)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import floats
from afflux_hdl import wire

__all__ = ["FixedPoint", "block_magnitudes", "guard_bits"]


def guard_bits(workers: int) -> int:
    """ceil(log2 workers): bits that the sum of so many integers needs above one of them."""
    return (workers - 1).bit_length()


def block_magnitudes(blocks: NDArray[np.float32]) -> NDArray[np.int32]:
    """The greatest magnitude of each block, as the bits of a float32 without its sign.

    Args:
        blocks: (..., 64) float32, contiguous.

    Returns:
        (...) int32. 0 if and only if all elements are zero; not below 0x7F800000 if and only if
        one is NaN or infinite. The IEEE exponent is the value >> 23.
    """
    # As integers, so that a NaN wins whatever its payload.
    bits = blocks.view(np.int32) & np.int32(0x7FFF_FFFF)
    result: NDArray[np.int32] = bits.max(axis=-1)
    return result


# Exponents for which float32 arithmetic gives the same bits as double, at half the cost. The scale
# 2**(157 - g - E) and the unit 2**(E - 157 + g), divided by up to 64, are normal float32 numbers.
# Scaling is then exact (what becomes denormal rounds to 0 either way), an int32 is rounded to
# float32 once, no result is denormal and none overflows.
_SINGLE_LEAST, _SINGLE_GREATEST = 40, 240
_SINGLE_LOW = bytes(range(255 - _SINGLE_GREATEST, 256 - _SINGLE_LEAST))


class FixedPoint:
    """The numbers of one operation: from floats to integers of an agreed exponent, and back.

    Exponents come as the low bytes of agreed look-ahead words, 255 - exponent.

    Args:
        workers: N, 1 to 64.
        dtype: Type of the result.
        average: Whether sums are divided by N.
    """

    def __init__(self, workers: int, dtype: wire.Dtype, average: bool) -> None:
        self._dtype, self._average = dtype, average
        exponents = 255 - np.arange(256)
        power = (30 - guard_bits(workers) - (exponents - 127)).reshape(256, 1)
        self._scales: NDArray[np.float64] = np.ldexp(1.0, power)
        self._units: NDArray[np.float64] = np.ldexp(1.0, -power)
        self._divisor: float | None = None
        if average:
            if workers & (workers - 1) == 0:
                # Exact, so it may be taken into the unit.
                self._units /= workers
            else:
                self._divisor = float(workers)
        with np.errstate(over="ignore", under="ignore"):
            self._single_scales: NDArray[np.float32] = self._scales.astype(np.float32)
            self._single_units: NDArray[np.float32] = self._units.astype(np.float32)
        self._single_values = dtype is wire.Dtype.FLOAT32 and self._divisor is None
        size = (wire.LANES_MAX, wire.BLOCK_ELEMENTS)
        self._scratch: NDArray[np.float64] = np.empty(size, np.float64)
        self._single_scratch: NDArray[np.float32] = np.empty(size, np.float32)

    def quantise(self, blocks: NDArray[np.float32], low: bytes, out: NDArray[np.int32]) -> None:
        """Integers of finite blocks.

        Args:
            blocks: (k, 64) float32, k up to 16, all finite.
            low: k low bytes of the agreed words.
            out: (k, 64) int32, filled.
        """
        index = np.frombuffer(low, np.uint8)
        scratch: NDArray[Any]
        if low.translate(None, _SINGLE_LOW):
            # A double times a power of two is exact: nothing leaves double's normal range.
            scratch = self._scratch[: len(blocks)]
            np.multiply(blocks, self._scales.take(index, axis=0), out=scratch)
        else:
            scratch = self._single_scratch[: len(blocks)]
            np.multiply(blocks, self._single_scales.take(index, axis=0), out=scratch)
        np.rint(scratch, out=scratch)
        np.copyto(out, scratch, casting="unsafe")

    def values(self, sums: NDArray[np.int32], low: bytes, out: NDArray[Any]) -> None:
        """Sums, or averages, of the dtype.

        Args:
            sums: (k, 64) int32, k up to 16.
            low: k low bytes of the agreed words.
            out: (k, 64) in the dtype's storage, filled.
        """
        index = np.frombuffer(low, np.uint8)
        if self._single_values and not low.translate(None, _SINGLE_LOW):
            np.copyto(out, sums, casting="same_kind")
            np.multiply(out, self._single_units.take(index, axis=0), out=out)
            return
        scratch = self._scratch[: len(sums)]
        np.multiply(sums, self._units.take(index, axis=0), out=scratch)
        if self._divisor is not None:
            np.divide(scratch, self._divisor, out=scratch)
        floats.narrow(scratch, self._dtype, out)
        if self._average:
            # A sum is a multiple of the unit or of the dtype's quantum, whichever is greater, so
            # only a division makes it small enough to vanish, and leave its sign.
            floats.clear_negative_zeros(out, self._dtype)
