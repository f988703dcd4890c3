"""The C++ codec, called with what tests have: numpy arrays, dtypes, reductions."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire

__all__ = ["blocks_of", "exact", "numbers", "padded", "reduce", "reduce_in_place", "scan"]


def numbers(ranks: int, dtype: wire.Dtype, reduction: Reduction) -> _native.Numbers:
    return _native.Numbers(ranks, int(dtype), reduction.number)


def blocks_of(count: int) -> int:
    return -(-count // wire.BLOCK_ELEMENTS)


def padded(tensor: NDArray) -> NDArray:
    """Whole blocks, zeros after the elements."""
    whole = np.zeros(blocks_of(len(tensor)) * wire.BLOCK_ELEMENTS, tensor.dtype)
    whole[: len(tensor)] = tensor
    return whole


def scan(dtype: wire.Dtype, tensor: NDArray) -> NDArray[np.uint8]:
    exponents = np.full(blocks_of(len(tensor)), 99, np.uint8)
    _native.scan(int(dtype), tensor, exponents)
    return exponents


def reduce(tensors: Sequence[NDArray], dtype: wire.Dtype, reduction: Reduction) -> NDArray:
    """Through copies of whole blocks, as ranks that cannot reach each other's tensors do it."""
    count = len(tensors[0])
    exponents, copies = [], []
    for tensor in tensors:
        # Absent blocks are not copied, and must not be read.
        copy = np.full(blocks_of(count) * wire.BLOCK_ELEMENTS, 0x55, tensor.dtype)
        found = np.empty(blocks_of(count), np.uint8)
        _native.scan_copy(int(dtype), tensor, copy, found)
        if reduction in (Reduction.MAX, Reduction.MIN):
            copy = padded(tensor)
        copies.append(copy)
        exponents.append(found)
    out = np.zeros_like(copies[0])
    present = np.full(blocks_of(count), 77, np.uint8)
    numbers(len(tensors), dtype, reduction).reduce(copies, exponents, out, present)
    some = np.any(exponents, axis=0) | (reduction in (Reduction.MAX, Reduction.MIN))
    np.testing.assert_array_equal(present, some)
    assert not out.reshape(-1, wire.BLOCK_ELEMENTS)[present == 0].any()
    return out[:count]


def reduce_in_place(
    tensors: Sequence[NDArray], dtype: wire.Dtype, reduction: Reduction
) -> list[NDArray]:
    own = [tensor.copy() for tensor in tensors]
    numbers(len(tensors), dtype, reduction).reduce_in_place(own)
    return own


def exact(tensors: Sequence[NDArray], dtype: wire.Dtype, reduction: Reduction) -> NDArray:
    out = np.empty_like(tensors[0])
    numbers(len(tensors), dtype, reduction).exact(tensors, out)
    return out
