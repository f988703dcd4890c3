"""The worker's arithmetic against fractions, numpy and the claims of docs/protocol.md section 8."""

import itertools
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afflux_sim.golden.numbers import (
    all_reduce,
    bits_to_tensor,
    class_counts,
    exact_limbs,
    exact_total,
    float_from_key,
    guard_bits,
    is_exact_mode,
    key_of_float,
    largest_exponent,
    quantise,
    widen,
)
from afflux_sim.golden.rounding import FORMATS, round_to_bits
from tests.support.golden_tensors import KINDS, bits_of, draw, narrow, reductions

finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
workers_ = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 63, 64])
fractions = st.builds(
    lambda n, d, e: Fraction(n, d) * Fraction(2) ** e,
    st.integers(-(2**40), 2**40),
    st.integers(1, 64),
    st.integers(-190, 120),
)


def value_of(bits: int, dtype: str) -> Fraction:
    return Fraction(float(widen(bits_to_tensor([bits], dtype), dtype)[0]))


@pytest.mark.parametrize("dtype", FORMATS)
@given(value=fractions)
@example(Fraction(0))
@example(Fraction(1, 2**25))
@example(Fraction(3, 2**25))
@example(Fraction(-1, 2**150))
@example(Fraction(65519))
@example(Fraction(65520))
@example(Fraction(2**128 - 2**103))
@example(Fraction(2**128 - 2**103) - Fraction(1, 2**60))
@example(Fraction(2**24 + 1))
@example(Fraction(2**24 + 3))
def test_rounding_finds_the_nearest_ties_to_even(dtype, value):
    to = FORMATS[dtype]
    bits = round_to_bits(value.numerator, value.denominator, to)
    magnitude = bits & ~to.sign
    if magnitude == 0:
        assert bits == 0
    else:
        assert bool(bits & to.sign) == (value < 0)
    # Infinity stands where the next number would, if there were one more exponent.
    beyond = Fraction(2) ** (to.bias + 1)
    values = {
        m: beyond if m == to.infinity else value_of(m, dtype)
        for m in (magnitude - 1, magnitude, magnitude + 1)
        if 0 <= m <= to.infinity
    }
    distance = {m: abs(abs(value) - v) for m, v in values.items()}
    if abs(value) >= beyond:
        assert magnitude == to.infinity
        return
    nearest = min(distance.values())
    assert distance[magnitude] == nearest
    if list(distance.values()).count(nearest) == 2:
        assert magnitude % 2 == 0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rounding_agrees_with_numpy(dtype):
    rng = np.random.default_rng(5)
    scale = rng.integers(-30, 20, 3000) if dtype == "float16" else rng.integers(-150, 128, 3000)
    values = np.ldexp(rng.uniform(-1, 1, 3000), scale)
    with np.errstate(over="ignore"):
        expected = values.astype(dtype) + np.zeros(1, dtype)
    bits = [round_to_bits(*float(v).as_integer_ratio(), FORMATS[dtype]) for v in values]
    assert np.array_equal(bits_of(expected, dtype), np.array(bits))


@given(finite32, st.integers(1, 254), workers_)
def test_quantise_is_the_rounded_fraction(x, exponent, workers):
    block = np.array([x], dtype=np.float32)
    exponent = max(exponent, largest_exponent(block))
    g = guard_bits(workers)
    exact = Fraction(float(block[0])) * Fraction(2) ** (30 - g - (exponent - 127))
    (q,) = quantise(block, exponent, workers)
    assert q == round(exact)
    assert abs(int(q)) <= 2 ** (31 - g) - 2 ** (7 - g)
    assert workers * abs(int(q)) < 2**31


def test_largest_magnitude_at_most_workers_does_not_overflow():
    x = np.full(64, np.finfo(np.float32).max, dtype=np.float32)
    for workers in (1, 2, 3, 64):
        for sign in (1, -1):
            result = all_reduce([x * sign] * workers, "float32", "avg")
            assert np.array_equal(result, x * sign)


def test_guard_bits():
    assert [guard_bits(n) for n in (1, 2, 3, 4, 5, 8, 9, 63, 64)] == [0, 1, 2, 2, 3, 3, 4, 6, 6]


@pytest.mark.parametrize(("workers", "small"), [(1, 2.0**-30), (2, 2.0**-29), (3, 2.0**-28)])
def test_the_unit_of_a_block_is_as_the_document_computes_it(workers, small):
    # Beside 1.0, q counts units of 2**(g - 30): three quarters of one become one, a half none.
    tensors = [np.zeros(128, dtype=np.float32) for _ in range(workers)]
    tensors[0][:3] = [1.0, 0.75 * small, 0.5 * small]
    result = all_reduce(tensors, "float32", "sum")
    assert result[:3].tolist() == [1.0, small, 0.0]


def test_exponent_of_zero_subnormal_and_largest():
    exponents = [0.0, 2.0**-149, 2.0**-126, 1.0, 3.4e38, np.nan, np.inf]
    found = [largest_exponent(np.array([x], dtype=np.float32)) for x in exponents]
    assert found == [1, 1, 1, 127, 254, 1, 1]


@given(
    st.integers(-(2**31) + 1, 2**31 - 1),
    st.integers(1, 254),
    workers_,
    st.sampled_from(["sum", "avg"]),
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_decoding_agrees_with_the_document_in_double(dtype, total, exponent, workers, reduction):
    g = guard_bits(workers)
    scale = (exponent - 127) - 30 + g
    y = np.ldexp(np.float64(total), scale)
    assert Fraction(float(y)) == total * Fraction(2) ** scale
    if reduction == "avg":
        y = y / workers
    with np.errstate(over="ignore", under="ignore"):
        expected = np.array([y]).astype(dtype) + np.zeros(1, dtype)
    value = total * Fraction(2) ** scale / (workers if reduction == "avg" else 1)
    bits = round_to_bits(value.numerator, value.denominator, FORMATS[dtype])
    assert bits == bits_of(expected, dtype)[0]


@given(finite32)
def test_limbs_hold_every_finite_element(x):
    words = exact_limbs(float(np.float32(x)))
    assert Fraction(exact_total(words), 2**149) == Fraction(float(np.float32(x)))
    assert max(abs(int(limb)) for limb in words[:12]) < 2**25
    assert words[12] == 0


@given(st.lists(finite32, min_size=1, max_size=64), st.sampled_from(["sum", "avg"]))
def test_exact_mode_is_the_correctly_rounded_sum(elements, reduction):
    tensors = [np.array([x], dtype=np.float32) for x in elements]
    total = sum((Fraction(float(x[0])) for x in tensors), Fraction(0))
    total /= len(elements) if reduction == "avg" else 1
    expected = round_to_bits(total.numerator, total.denominator, FORMATS["float32"])
    result = all_reduce(tensors, "float32", reduction)
    assert bits_of(result, "float32")[0] == expected


def test_where_exact_mode_ends():
    assert is_exact_mode(73, "float32", "sum")
    assert not is_exact_mode(74, "float32", "sum")
    assert is_exact_mode(73, "bfloat16", "avg")
    assert not is_exact_mode(74, "bfloat16", "avg")
    assert not is_exact_mode(1, "float32", "max")
    assert not is_exact_mode(1, "int32", "sum")
    # 1 + 2**-100 - 1: only exact mode keeps it.
    tensors = [np.array([x], dtype=np.float32) for x in (1.0, 2.0**-100, -1.0)]
    assert all_reduce(tensors, "float32", "sum")[0] == 2.0**-100
    assert all_reduce(tensors, "float32", "sum", part=True)[0] == 0.0
    for count, kept in ((73, 2.0**-100), (74, 0.0)):
        results = all_reduce([np.resize(x, count) for x in tensors], "float32", "sum")
        assert (results == kept).all()


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=20))
def test_keys_keep_the_order_and_come_back(elements):
    x = np.array(elements, dtype=np.float32)
    for reduction in ("max", "min"):
        keys = key_of_float(x, reduction)
        for (a, i), (b, j) in itertools.combinations(zip(x, keys, strict=True), 2):
            assert (a < b) <= (i < j)
            assert (a > b) <= (i > j)
        assert np.array_equal(bits_of(float_from_key(keys, "float32"), "float32"), x.view("u4"))


def test_minus_zero_is_less_and_nan_wins():
    a = np.array([0.0, -0.0, np.nan, 1.0, -np.nan, np.inf], dtype=np.float32)
    b = np.array([-0.0, -0.0, 9.0, np.nan, 2.0, -np.inf], dtype=np.float32)
    greatest = bits_of(all_reduce([a, b], "float32", "max"), "float32")
    least = bits_of(all_reduce([a, b], "float32", "min"), "float32")
    nan = 0x7FC00000
    assert [hex(i) for i in greatest] == [hex(i) for i in (0, 1 << 31, nan, nan, nan, 0x7F800000)]
    assert [hex(i) for i in least] == [
        hex(i) for i in (1 << 31, 1 << 31, nan, nan, nan, 0xFF800000)
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("reduction", ["sum", "avg"])
@pytest.mark.parametrize("part", [False, True])
def test_not_finite_elements_as_ieee_has_them(dtype, reduction, part):
    cases = list(itertools.product([np.nan, np.inf, -np.inf, 1.5, 0.0], repeat=2))
    a, b = (np.array(column, dtype=np.float32) for column in zip(*cases, strict=True))
    result = all_reduce([narrow(a, dtype), narrow(b, dtype)], dtype, reduction, part=part)
    with np.errstate(invalid="ignore"):
        expected = (a + b) / (2 if reduction == "avg" else 1)
    assert np.array_equal(widen(result, dtype), expected, equal_nan=True)
    nans = bits_of(result, dtype)[np.isnan(expected)]
    assert set(nans.tolist()) == {FORMATS[dtype].nan}


def test_class_counts_of_64_workers_stay_apart():
    x = np.array([np.nan, np.inf, -np.inf, 1.0], dtype=np.float32)
    total = 64 * class_counts(x)
    assert total.tolist() == [64, 64 << 10, 64 << 20, 0]


@pytest.mark.parametrize("reduction", ["sum", "avg"])
def test_error_bound_of_the_document(reduction):
    rng = np.random.default_rng(2)
    for kind in ("dense", "mixed", "tiny"):
        for workers in (2, 3, 8):
            tensors = [draw(rng, kind, "float32", 640) for _ in range(workers)]
            result = all_reduce(tensors, "float32", reduction)
            n = workers if reduction == "avg" else 1
            for start in range(0, 640, 64):
                part = slice(start, start + 64)
                largest = max(float(np.abs(x[part]).max()) for x in tensors)
                e = int(np.floor(np.log2(largest)))
                bound = Fraction(workers) * Fraction(2) ** (max(e, -126) + guard_bits(workers) - 31)
                for i in range(start, start + 64):
                    exact = sum((Fraction(float(x[i])) for x in tensors), Fraction()) / n
                    ulp = Fraction(float(np.spacing(np.abs(result[i]))))
                    assert abs(Fraction(float(result[i])) - exact) <= bound / n + ulp / 2


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_order_of_workers_changes_nothing(dtype, kind):
    rng = np.random.default_rng(3)
    tensors = [draw(rng, kind, dtype, 300) for _ in range(4)]
    for reduction in reductions(dtype):
        for count in (73, 300):
            few = [tensor[:count] for tensor in tensors]
            one = all_reduce(few, dtype, reduction)
            other = all_reduce(few[::-1], dtype, reduction)
            assert np.array_equal(bits_of(one, dtype), bits_of(other, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sums_never_give_minus_zero(dtype):
    smallest = bits_to_tensor([FORMATS[dtype].sign | 1], dtype)
    zero = bits_to_tensor([FORMATS[dtype].sign], dtype)
    for part in (False, True):
        # Half of the smallest number, negative, rounds to zero.
        assert bits_of(all_reduce([smallest, zero], dtype, "avg", part=part), dtype) == 0
        assert bits_of(all_reduce([zero, zero], dtype, "sum", part=part), dtype) == 0


def test_integers_wrap():
    x = np.array([2**31 - 1, -(2**31)], dtype=np.int32)
    assert all_reduce([x, x, x], "int32", "sum").tolist() == [2**31 - 3, -(2**31)]


def test_shape_and_dtype_come_back():
    for dtype in ("int32", "float32", "float16", "bfloat16"):
        numpy_dtype = {"bfloat16": "uint16"}.get(dtype, dtype)
        for shape in ((), (0, 3), (2, 3), (5,)):
            result = all_reduce([np.zeros(shape, numpy_dtype)] * 2, dtype, "sum")
            assert (result.shape, result.dtype) == (shape, np.dtype(numpy_dtype))


@pytest.mark.parametrize(
    ("dtype", "reduction"), [("int32", "avg"), ("int8", "sum"), ("int32", "x")]
)
def test_operations_that_do_not_exist(dtype, reduction):
    with pytest.raises(ValueError):
        all_reduce([np.zeros(1, np.int32)], dtype, reduction)


def test_hundred_thousand_elements_take_seconds():
    rng = np.random.default_rng(4)
    tensors = [draw(rng, "dense", "float32", 100_000) for _ in range(4)]
    start = time.monotonic()
    all_reduce(tensors, "float32", "avg")
    assert time.monotonic() - start < 10
