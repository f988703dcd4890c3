"""Integers in the order of floats, for MAX and MIN (section 8.5 of the protocol)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import floats
from afflux_drivers.reduction import Reduction
from afflux_hdl import wire

__all__ = ["from_keys", "to_keys"]

_MAGNITUDE = np.int32(0x7FFF_FFFF)
_GREATEST = np.int32(0x7FFF_FFFF)
_LEAST = np.int32(-(1 << 31))
_NAN_BITS = np.int32(0x7FC0_0000)


def _flip(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.where(bits >= 0, bits, bits ^ _MAGNITUDE)


def to_keys(elements: NDArray[np.float32], reduction: Reduction) -> NDArray[np.int32]:
    """Keys of float32 elements, same shape. NaN wins the reduction."""
    keys = _flip(elements.view(np.int32))
    keys[np.isnan(elements)] = _GREATEST if reduction is Reduction.MAX else _LEAST
    return keys


def from_keys(keys: NDArray[np.int32], dtype: wire.Dtype) -> NDArray[Any]:
    """Elements of `dtype` that `to_keys` gives the keys of, exactly; NaN becomes the quiet one."""
    bits = _flip(keys)
    bits[(keys == _GREATEST) | (keys == _LEAST)] = _NAN_BITS
    if dtype is wire.Dtype.BFLOAT16:
        return (bits.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return bits.view(np.float32).astype(floats.storage_dtype(dtype))
