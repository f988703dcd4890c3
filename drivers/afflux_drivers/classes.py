"""NaN and infinities, counted by element (section 8.3 of the protocol)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_hdl import wire

__all__ = ["class_counts", "overlay"]

_COUNT = wire.CLASS_POSITIVE_INFINITY - 1

# NaN, +infinity, -infinity in each type's storage.
_NON_FINITE: dict[wire.Dtype, tuple[Any, Any, Any]] = {
    wire.Dtype.FLOAT32: (np.float32(np.nan), np.float32(np.inf), np.float32(-np.inf)),
    wire.Dtype.FLOAT16: (np.float16(np.nan), np.float16(np.inf), np.float16(-np.inf)),
    wire.Dtype.BFLOAT16: (np.uint16(0x7FC0), np.uint16(0x7F80), np.uint16(0xFF80)),
}


def class_counts(elements: NDArray[np.float32]) -> NDArray[np.int32]:
    """One worker's class counts: the class's unit where an element is not finite, else 0."""
    counts = np.zeros(elements.shape, np.int32)
    counts[np.isnan(elements)] = wire.CLASS_NAN
    counts[elements == np.inf] = wire.CLASS_POSITIVE_INFINITY
    counts[elements == -np.inf] = wire.CLASS_NEGATIVE_INFINITY
    return counts


def overlay(sums: NDArray[np.int32], dtype: wire.Dtype, out: NDArray[Any]) -> None:
    """Writes NaN and infinities over the finite values in `out`, where the sums of counts say so.

    NaN where any rank had NaN or both infinities occur, as IEEE addition would.
    """
    nan = sums & _COUNT
    positive = (sums // wire.CLASS_POSITIVE_INFINITY) & _COUNT
    negative = (sums // wire.CLASS_NEGATIVE_INFINITY) & _COUNT
    nan_value, positive_value, negative_value = _NON_FINITE[dtype]
    out[positive != 0] = positive_value
    out[negative != 0] = negative_value
    out[(nan != 0) | ((positive != 0) & (negative != 0))] = nan_value
