"""Which blocks of a tensor are sent, and their exponents, at every instruction set."""

from collections.abc import Iterator

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_hdl.contract import wire

# Exponent bits, fraction bits, and the type of the bits.
FORMATS = {
    wire.Dtype.FLOAT32: (8, 23, np.uint32),
    wire.Dtype.FLOAT16: (5, 10, np.uint16),
    wire.Dtype.BFLOAT16: (8, 7, np.uint16),
}


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    best = _native.instruction_set()
    _native.use_instruction_set(request.param)
    try:
        yield request.param
    finally:
        _native.use_instruction_set(best)


def scanned(dtype, bits):
    storage = {np.uint32: np.float32, np.uint16: np.uint16}[FORMATS[dtype][2]]
    if dtype is wire.Dtype.FLOAT16:
        storage = np.float16
    return list(_native.scan_blocks(int(dtype), bits.view(storage)))


@pytest.mark.parametrize("dtype", FORMATS)
def test_each_place_and_each_exponent(instruction_set, dtype):
    exponent_bits, fraction_bits, kind = FORMATS[dtype]
    size = np.dtype(kind).itemsize
    count, every = 256 // size, 1 << exponent_bits
    # One element in each block, at another place each time, of either sign.
    bits = np.zeros((every, count), dtype=kind)
    for exponent in range(every):
        sign = (exponent & 1) << (8 * size - 1)
        bits[exponent, exponent % count] = sign | exponent << fraction_bits | 1
    # Subnormal numbers have exponent 1; so has a block of NaN alone, which is sent for its bits.
    right = [max(1, exponent) if exponent < every - 1 else 1 for exponent in range(every)]
    assert scanned(dtype, bits.reshape(-1)) == right


@pytest.mark.parametrize("dtype", FORMATS)
def test_any_blocks(instruction_set, dtype):
    exponent_bits, fraction_bits, kind = FORMATS[dtype]
    rng = np.random.default_rng(3)
    size = np.dtype(kind).itemsize
    bits = rng.integers(0, 1 << (8 * size), (300, 256 // size)).astype(kind)
    bits[::7] = 0
    bits[1::7] = 1 << (8 * size - 1)
    bits[2::7] &= (1 << (fraction_bits + 2)) - 1
    fields = bits.astype(np.int64) >> fraction_bits & (1 << exponent_bits) - 1
    finite = np.where(fields == (1 << exponent_bits) - 1, 0, fields)
    right = np.where(bits.any(axis=1), np.maximum(finite.max(axis=1), 1), 0)
    # Blocks of zeros alone are not sent; those of −0 are.
    assert right[0] == 0 and right[1] == 1
    assert scanned(dtype, bits.reshape(-1)) == right.tolist()


def test_integers(instruction_set):
    bits = np.zeros((4, 64), dtype=np.int32)
    bits[1, 63], bits[3, 0] = -(2**31), 1
    assert list(_native.scan_blocks(0, bits.reshape(-1))) == [0, 1, 0, 1]
