"""Berkeley SoftFloat judges the sums: IEEE 754 by code that shares nothing with ours."""

import random

import numpy as np
import pytest
import softfloatpy as sf

from afflux_drivers import _native
from afflux_hdl.contract import wire
from tests.support.drivers.tensors import FLOATS, from_bits

# Type of the judge, its way to and from 128 bits; bytes, exponent and fraction bits.
FORMATS = {
    wire.Dtype.FLOAT32: (sf.Float32, 4, 8, 23),
    wire.Dtype.FLOAT16: (sf.Float16, 2, 5, 10),
    wire.Dtype.BFLOAT16: (sf.BFloat16, 2, 8, 7),
}


def widened(bits: int, dtype: wire.Dtype) -> sf.Float128:
    number, size, _, _ = FORMATS[dtype]
    value = number.from_bytes(bits.to_bytes(size, "big"))
    # SoftFloat's bfloat16 goes by float32, which holds it.
    return sf.f32_to_f128(value.to_f32()) if dtype is wire.Dtype.BFLOAT16 else value.to_f128()


def judged(elements: list[int], dtype: wire.Dtype) -> int | None:
    """Return the bits of the sum, rounded once; None if 113 bits do not hold it."""
    _, _, exponent_bits, fraction_bits = FORMATS[dtype]
    sf.set_exception_flags(0)
    total = widened(elements[0], dtype)
    for bits in elements[1:]:
        total = sf.f128_add(total, widened(bits, dtype))
    if sf.test_exception_flags(sf.ExceptionFlag.INEXACT):
        return None
    if sf.f128_is_nan(total):
        infinity = (2**exponent_bits - 1) << fraction_bits
        return infinity | 1 << (fraction_bits - 1)
    if dtype is wire.Dtype.FLOAT16:
        rounded = sf.f128_to_f16(total).to_bytes()
    else:
        single = sf.f128_to_f32(total)
        if dtype is wire.Dtype.BFLOAT16:
            # Only if it is not rounded twice.
            if sf.test_exception_flags(sf.ExceptionFlag.INEXACT):
                return None
            rounded = sf.f32_to_bf16(single).to_bytes()
        else:
            rounded = single.to_bytes()
    return int.from_bytes(rounded, "big")


def drawn(rng: random.Random, dtype: wire.Dtype) -> list[int]:
    """Return elements of one sum: near one another, of the whole range, or special."""
    _, _, exponent_bits, fraction_bits = FORMATS[dtype]
    top = 2**exponent_bits - 1
    middle, spread = rng.randrange(top), rng.choice([0, 1, 3, 24, top])
    elements = []
    for _ in range(rng.choice([2, 2, 2, 3, 8, 64])):
        field = min(max(middle + rng.randint(-spread, spread), 0), top)
        fraction = rng.choice([0, 1, 2**fraction_bits - 1, rng.getrandbits(fraction_bits)])
        sign = rng.getrandbits(1) << (exponent_bits + fraction_bits)
        elements.append(sign | field << fraction_bits | fraction)
    if rng.random() < 0.2:
        # What cancels leaves the rest.
        elements.append(elements[0] ^ 1 << (exponent_bits + fraction_bits))
    return elements[:64]


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_are_those_of_softfloat(dtype):
    rng = random.Random(int(dtype))
    judgements, of_zero = 0, 0
    for _ in range(15_000):
        elements = drawn(rng, dtype)
        right = judged(elements, dtype)
        if right is None:
            continue
        judgements += 1
        of_zero += right % 2 ** (8 * FORMATS[dtype][1] - 1) == 0
        assert _native.exact_sum(int(dtype), 0, True, elements) == right, elements
    # Or else nothing much was judged.
    assert judgements > 9_000 and of_zero > 50, (judgements, of_zero)


@pytest.mark.parametrize("dtype", FLOATS)
def test_arrays_of_two_ranks_are_those_of_softfloat(dtype):
    rng = np.random.default_rng(int(dtype))
    size = FORMATS[dtype][1]
    one, other = rng.integers(0, 1 << (8 * size), (2, 6400))
    # In half of them the second element is near the first, or opposite.
    other[::2] = one[::2] ^ rng.integers(0, 4, 3200) ^ (rng.integers(0, 2, 3200) << (8 * size - 1))
    arrays = [from_bits(bits.tolist(), dtype) for bits in (one, other)]
    out = np.zeros_like(arrays[0])
    _native.exact_sums(int(dtype), 0, True, arrays, out)
    found = out.view(np.uint32 if size == 4 else np.uint16).tolist()
    judgements = 0
    for a, b, sum_ in zip(one.tolist(), other.tolist(), found, strict=True):
        right = judged([a, b], dtype)
        judgements += right is not None
        assert right in (None, sum_), (a, b)
    assert judgements > 3_000
