"""float32, float16 and bfloat16: widened exactly, and rounded once from double.

bfloat16 travels as its 16 bits in uint16, since numpy has no such type. Its rounding must not pass
through float32: two roundings to nearest are not one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_hdl import wire

__all__ = [
    "FORMATS",
    "Format",
    "clear_negative_zeros",
    "narrow",
    "storage_dtype",
    "widen",
]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        precision: Bits of the significand, the hidden one included.
        quantum_exponent: Exponent of the least denormal.
        exponent_max: Exponent of the greatest finite binade.
    """

    precision: int
    quantum_exponent: int
    exponent_max: int


FORMATS = {
    wire.Dtype.FLOAT32: Format(24, -149, 127),
    wire.Dtype.FLOAT16: Format(11, -24, 15),
    wire.Dtype.BFLOAT16: Format(8, -133, 127),
}

_STORAGE: dict[wire.Dtype, np.dtype[Any]] = {
    wire.Dtype.INT32: np.dtype(np.int32),
    wire.Dtype.FLOAT32: np.dtype(np.float32),
    wire.Dtype.FLOAT16: np.dtype(np.float16),
    wire.Dtype.BFLOAT16: np.dtype(np.uint16),
}


def storage_dtype(dtype: wire.Dtype) -> np.dtype[Any]:
    """The numpy dtype that holds elements of `dtype`."""
    return _STORAGE[dtype]


def widen(elements: NDArray[Any], dtype: wire.Dtype) -> NDArray[np.float32]:
    """The same values as float32, exactly; float32 elements themselves, not a copy."""
    if dtype is wire.Dtype.BFLOAT16:
        return (elements.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return elements.astype(np.float32, copy=False)


# bfloat16 keeps 7 of double's 52 bits of fraction.
_DROPPED = np.uint64(52 - 7)
_HALF_LESS_ONE = np.uint64((1 << (52 - 7 - 1)) - 1)
_KEPT = np.uint64(((1 << 64) - 1) ^ ((1 << (52 - 7)) - 1))
_LEAST_NORMAL = 2.0**-126
# Adding and taking away this rounds a smaller double to a multiple of 2**-133, bfloat16's quantum.
_TO_QUANTUM = 1.5 * 2.0 ** (52 - 133)


def _narrow_bfloat16(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    bits = values.view(np.uint64)
    odd = (bits >> _DROPPED) & np.uint64(1)
    rounded = ((bits + (odd + _HALF_LESS_ONE)) & _KEPT).view(np.float64)
    tiny = np.abs(values) < _LEAST_NORMAL
    if tiny.any():
        rounded = np.where(tiny, (values + _TO_QUANTUM) - _TO_QUANTUM, rounded)
    # Exact but for what became too large, which turns infinite.
    return (rounded.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def narrow(values: NDArray[np.float64], dtype: wire.Dtype, out: NDArray[Any]) -> None:
    """Rounds finite doubles to `dtype`, once, to nearest, ties to even; too large becomes infinite.

    A result of zero has either sign.

    Args:
        values: Finite doubles, C-contiguous.
        dtype: One of the floating-point types.
        out: Same shape, in the dtype's storage.
    """
    with np.errstate(over="ignore", under="ignore"):
        if dtype is wire.Dtype.BFLOAT16:
            np.copyto(out, _narrow_bfloat16(values))
        else:
            np.copyto(out, values, casting="unsafe")


def clear_negative_zeros(elements: NDArray[Any], dtype: wire.Dtype) -> None:
    """Turns every -0 of an array in the dtype's storage into +0."""
    if dtype is wire.Dtype.BFLOAT16:
        elements[elements == 0x8000] = 0
    else:
        np.add(elements, elements.dtype.type(0), out=elements)
