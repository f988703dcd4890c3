"""Exact mode: sums of few floats, rounded once (section 8.4 of the protocol)."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import classes, floats
from afflux_hdl import wire

__all__ = ["decode", "encode", "nearest"]

_LIMB = 1 << wire.EXACT_LIMB_BITS
# float32 is an integer times this power of two.
_UNIT_EXPONENT = -149


def encode(elements: NDArray[np.float32]) -> NDArray[np.int32]:
    """Limbs and class count of each element.

    Args:
        elements: (count,) float32.

    Returns:
        (count, 13) int32: 12 limbs, least first, with the sign of the element, then the count.
    """
    count = len(elements)
    words = np.zeros((count, wire.EXACT_WORDS), np.int32)
    finite = np.where(np.isfinite(elements), elements, np.float32(0))
    bits = finite.view(np.int32)
    exponent = (bits >> 23) & 255
    significand = (bits & 0x7F_FFFF) | np.where(exponent > 0, 1 << 23, 0)
    limb, shift = np.divmod(np.maximum(exponent, 1) - 1, wire.EXACT_LIMB_BITS)
    # 24 bits, shifted by up to 24: two limbs hold it.
    shifted = significand.astype(np.int64) << shift
    sign = np.where(bits < 0, -1, 1)
    rows = np.arange(count)
    words[rows, limb] = sign * (shifted & (_LIMB - 1))
    words[rows, limb + 1] = sign * (shifted >> wire.EXACT_LIMB_BITS)
    words[:, wire.EXACT_LIMBS] = classes.class_counts(elements)
    return words


def nearest(numerator: int, denominator: int, exponent: int, form: floats.Format) -> float:
    """numerator / denominator · 2**exponent, rounded once to `form`, ties to even.

    Returns:
        A double that the format holds exactly; infinite if too large; +0 for all that rounds to 0.
    """
    magnitude = abs(numerator)
    # Of the quotient, at least `precision` bits, and none below the quantum.
    drop = magnitude.bit_length() - denominator.bit_length() - form.precision
    drop = max(drop, form.quantum_exponent - exponent)
    quotient, rest = divmod(magnitude << max(-drop, 0), denominator << max(drop, 0))
    if quotient.bit_length() > form.precision:
        # The estimate was one bit short: take that bit out, and remember what stood below.
        drop += 1
        quotient, rest = divmod(magnitude << max(-drop, 0), denominator << max(drop, 0))
    twice, whole = 2 * rest, denominator << max(drop, 0)
    if twice > whole or (twice == whole and quotient & 1):
        quotient += 1
    if quotient == 0:
        return 0.0
    if quotient.bit_length() + exponent + drop > form.exponent_max + 1:
        return math.copysign(math.inf, numerator)
    return math.copysign(math.ldexp(quotient, exponent + drop), numerator)


def decode(
    sums: NDArray[np.int32], workers: int, average: bool, dtype: wire.Dtype, out: NDArray[Any]
) -> None:
    """Values of summed limbs and counts.

    Args:
        sums: (count, 13) int32.
        workers: N.
        average: Whether to divide by N.
        dtype: One of the floating-point types.
        out: (count,) in the dtype's storage, filled.
    """
    form = floats.FORMATS[dtype]
    denominator = workers if average else 1
    values = np.empty(len(sums), np.float64)
    for index, limbs in enumerate(sums[:, : wire.EXACT_LIMBS].tolist()):
        total = 0
        for limb in reversed(limbs):
            total = total * _LIMB + limb
        values[index] = nearest(total, denominator, _UNIT_EXPONENT, form)
    finite = np.where(np.isinf(values), 0.0, values)
    floats.narrow(finite, dtype, out)
    # What overflowed is written as what it became.
    overflowed = np.where(
        values == np.inf,
        wire.CLASS_POSITIVE_INFINITY,
        np.where(values == -np.inf, wire.CLASS_NEGATIVE_INFINITY, 0),
    ).astype(np.int32)
    classes.overlay(overflowed, dtype, out)
    classes.overlay(sums[:, wire.EXACT_LIMBS], dtype, out)
