"""The codec's parts against definitions in exact arithmetic and against the golden numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drivers.tensors import FLOATS, awkward, bits_of, from_bits, name

from afflux_drivers import classes, exact, fixed_point, floats, order_keys
from afflux_drivers.reduction import Reduction
from afflux_hdl import wire
from afflux_sim import golden_numbers


def rounded(value: Fraction, dtype: wire.Dtype) -> float:
    """A dtype's nearest number to a rational, ties to even, by the definition."""
    form = floats.FORMATS[dtype]
    if value == 0:
        return 0.0
    magnitude = abs(value)
    # Of the leading bit; one too great for some, which the comparison mends.
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent - form.precision + 1, form.quantum_exponent)
    # Python rounds a Fraction to the nearest integer, ties to even.
    nearest = round(magnitude / Fraction(2) ** exponent) * Fraction(2) ** exponent
    if nearest >= Fraction(2) ** (form.exponent_max + 1):
        return float("inf") if value > 0 else float("-inf")
    return float(nearest) if value > 0 else -float(nearest)


def number_of(tensor: np.ndarray, dtype: wire.Dtype) -> list[float]:
    return floats.widen(tensor, dtype).astype(np.float64).tolist()


def near_ties(dtype: wire.Dtype, generator: np.random.Generator) -> np.ndarray:
    """Doubles at, and one step of double beside, the midpoints between a dtype's numbers."""
    form = floats.FORMATS[dtype]
    significands = generator.integers(0, 1 << form.precision, 300) + 0.5
    lowest, highest = form.quantum_exponent, form.exponent_max - form.precision + 1
    exponents = np.concatenate(
        [np.full(100, lowest), np.full(20, highest), generator.integers(lowest, highest + 1, 180)]
    )
    ties = np.ldexp(significands, exponents)
    greatest = np.ldexp(2.0 - 2.0**-form.precision, form.exponent_max)
    ties = np.concatenate([ties, [greatest, 2.0**form.quantum_exponent / 2, 0.0]])
    ties = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf)])
    # Where float32's own midpoints and bfloat16's meet, two roundings go wrong.
    ties = np.concatenate([ties, ties * (1 + 2.0**-26), ties * (1 - 2.0**-26)])
    return np.concatenate([ties, -ties])


@pytest.mark.parametrize("dtype", FLOATS)
def test_narrow_rounds_once(dtype):
    values = near_ties(dtype, np.random.default_rng(1))
    out = np.empty(values.shape, floats.storage_dtype(dtype))
    floats.narrow(values, dtype, out)
    want = [rounded(Fraction(value), dtype) for value in values.tolist()]
    assert number_of(out, dtype) == want


@pytest.mark.parametrize("dtype", [wire.Dtype.FLOAT16, wire.Dtype.BFLOAT16])
def test_widen_and_narrow_keep_every_number(dtype):
    every = from_bits(list(range(1 << 16)), dtype)
    wide = floats.widen(every, dtype)
    # What narrow does to the sign of a zero is not said.
    finite = np.isfinite(wide) & (bits_of(every) != 0x8000)
    out = np.empty(int(finite.sum()), floats.storage_dtype(dtype))
    floats.narrow(wide[finite].astype(np.float64), dtype, out)
    np.testing.assert_array_equal(bits_of(out), bits_of(every[finite]))
    np.testing.assert_array_equal(
        bits_of(wide), bits_of(golden_numbers.widen(every, name(dtype))), err_msg="widened"
    )


def test_clear_negative_zeros():
    for dtype in FLOATS:
        tensor = from_bits([0x8000, 0x8001, 0, 0x3C00], dtype)
        if dtype is wire.Dtype.FLOAT32:
            tensor = np.array([-0.0, -1e-45, 0.0, 1.0], np.float32)
        want = tensor.copy()
        want[0] = 0
        floats.clear_negative_zeros(tensor, dtype)
        np.testing.assert_array_equal(bits_of(tensor), bits_of(want))


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 64])
def test_guard_bits(workers):
    assert 2 ** fixed_point.guard_bits(workers) >= workers
    assert workers == 1 or 2 ** (fixed_point.guard_bits(workers) - 1) < workers


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 64])
def test_quantise_and_values_for_every_exponent(workers):
    generator = np.random.default_rng(workers)
    guard = fixed_point.guard_bits(workers)
    numbers = {
        (dtype, average): fixed_point.FixedPoint(workers, dtype, average)
        for dtype in FLOATS
        for average in (False, True)
    }
    # The ends, the middle, and where float32 arithmetic takes over from double.
    for exponents in (
        np.array([1, 2, 3, 24, 37, 38, 39, 40, 41, 42, 102, 103, 104, 126, 127, 128]),
        np.array([129, 141, 142, 143, 200, 239, 240, 241, 242, 243, 248, 250, 251, 252, 253, 254]),
    ):
        # The greatest element of each block just below the next exponent, the others anywhere.
        magnitudes = generator.integers(0, exponents[:, None] << 23 | 0x7F_FFFF, (16, 64))
        magnitudes[:, 5] = exponents << 23 | 0x7F_FFFF
        signs = generator.integers(0, 2, magnitudes.shape) << 31
        blocks = (magnitudes | signs).astype(np.uint32).view(np.float32)
        low = bytes((255 - exponents).astype(np.uint8))
        out = np.empty(blocks.shape, np.int32)
        quantised = fixed_point.FixedPoint(workers, wire.Dtype.FLOAT32, False)
        quantised.quantise(blocks, low, out)
        for row, exponent in enumerate(exponents.tolist()):
            scale = Fraction(2) ** (30 - guard - (exponent - 127))
            want = [round(Fraction(value) * scale) for value in blocks[row].tolist()]
            assert out[row].tolist() == want
            assert workers * max(map(abs, want)) < 2**31
        sums = generator.integers(-(2**31), 2**31, blocks.shape).astype(np.int32)
        sums[:, :8] = [0, 1, -1, 2**31 - 1, -(2**31), 2**24 + 1, -(2**25) - 3, 77]
        for (dtype, average), number in numbers.items():
            result = np.empty(sums.shape, floats.storage_dtype(dtype))
            number.values(sums, low, result)
            for row, exponent in enumerate(exponents.tolist()):
                unit = Fraction(2) ** ((exponent - 127) - 30 + guard)
                want = []
                for value in sums[row].tolist():
                    double = float(value * unit)
                    if average:
                        double /= workers
                    want.append(rounded(Fraction(double), dtype) + 0.0)
                found = number_of(result[row], dtype)
                assert found == want, (dtype, average, exponent)
                if average:
                    assert not np.signbit([v for v in found if v == 0]).any()


def test_block_magnitudes():
    blocks = np.zeros((6, 64), np.float32)
    blocks[1, 3] = -0.0
    blocks[2, 4] = -1e-45
    blocks[3, :2] = (1.0, -3.0)
    blocks[4, :2] = (np.inf, 1)
    blocks[5] = np.array([0xFF80_0001], np.uint32).view(np.float32)
    magnitudes = fixed_point.block_magnitudes(blocks)
    assert magnitudes.tolist()[:3] == [0, 0, 1]
    assert (magnitudes >> 23).tolist() == [0, 0, 0, 128, 255, 255]


def test_classes_of_every_kind_of_element():
    elements = np.array([0, -1, np.nan, np.inf, -np.inf, -np.nan], np.float32)
    assert classes.class_counts(elements).tolist() == [0, 0, 1, 1 << 10, 1 << 20, 1]


@pytest.mark.parametrize("dtype", FLOATS)
def test_overlay_is_what_addition_would_give(dtype):
    counts = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (64, 0, 0), (0, 64, 0)]
    counts += [(0, 0, 64), (1, 1, 0), (0, 32, 32)]
    sums = np.array([nan + (up << 10) + (down << 20) for nan, up, down in counts], np.int32)
    out = np.full(len(sums), 7, floats.storage_dtype(dtype))
    before = number_of(out, dtype)[0]
    classes.overlay(sums, dtype, out)
    for value, (nan, up, down) in zip(number_of(out, dtype), counts, strict=True):
        if nan or (up and down):
            assert np.isnan(value)
        else:
            assert value == (np.inf if up else -np.inf if down else before)


@given(
    st.integers(-(2**290), 2**290),
    st.integers(1, 64),
    st.integers(-160, -100),
    st.sampled_from(FLOATS),
)
def test_nearest_is_the_nearest(numerator, denominator, exponent, dtype):
    value = Fraction(numerator, denominator) * Fraction(2) ** exponent
    form = floats.FORMATS[dtype]
    assert exact.nearest(numerator, denominator, exponent, form) == rounded(value, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_mode_is_the_rational_sum(dtype):
    generator = np.random.default_rng(3)
    for workers in (1, 2, 3, 64):
        tensors = [awkward(generator, 73, dtype, False) for _ in range(workers)]
        wide = [floats.widen(tensor, dtype) for tensor in tensors]
        words = [exact.encode(tensor) for tensor in wide]
        for tensor, encoded in zip(wide, words, strict=True):
            assert (abs(encoded[:, :12].astype(np.int64)) < 1 << 25).all()
            for element, limbs in zip(tensor.tolist(), encoded[:, :12].tolist(), strict=True):
                total = sum(limb << 25 * place for place, limb in enumerate(limbs))
                assert Fraction(element) == total * Fraction(2) ** -149
        sums = np.sum(words, axis=0, dtype=np.int64)
        assert (abs(sums) < 2**31).all()
        for average in (False, True):
            out = np.empty(73, floats.storage_dtype(dtype))
            exact.decode(sums.astype(np.int32), workers, average, dtype, out)
            divisor = workers if average else 1
            want = [
                rounded(sum(map(Fraction, column)) / divisor, dtype)
                for column in zip(*(tensor.tolist() for tensor in wide), strict=True)
            ]
            assert number_of(out, dtype) == [value + 0.0 for value in want]


def test_exact_mode_of_what_is_not_finite():
    dtype = wire.Dtype.FLOAT32
    first = np.array([np.nan, np.inf, np.inf, 3e38, -3e38, 1], np.float32)
    second = np.array([1, -np.inf, 5, 3e38, -3e38, np.inf], np.float32)
    out = np.empty(6, np.float32)
    exact.decode(exact.encode(first) + exact.encode(second), 2, False, dtype, out)
    np.testing.assert_array_equal(out, [np.nan, np.nan, np.inf, np.inf, -np.inf, np.inf])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", [Reduction.MAX, Reduction.MIN])
def test_keys_have_the_order_of_the_numbers_and_come_back(dtype, reduction):
    generator = np.random.default_rng(5)
    tensor = awkward(generator, 3000, dtype, True)
    wide = floats.widen(tensor, dtype)
    keys = order_keys.to_keys(wide, reduction)
    golden = golden_numbers.key_of_float(wide, reduction.value)
    np.testing.assert_array_equal(keys, golden)
    nan = np.isnan(wide)
    back = order_keys.from_keys(keys, dtype)
    np.testing.assert_array_equal(bits_of(back)[~nan], bits_of(tensor)[~nan])
    quiet = {wire.Dtype.FLOAT32: 0x7FC0_0000, wire.Dtype.FLOAT16: 0x7E00}.get(dtype, 0x7FC0)
    assert set(bits_of(back)[nan].tolist()) == {quiet}
    numbers, their_keys = wide[~nan], keys[~nan].astype(np.int64)
    order = np.argsort(their_keys, kind="stable")
    ordered = numbers[order]
    assert (ordered[1:] >= ordered[:-1]).all()
    winner = keys.max() if reduction is Reduction.MAX else keys.min()
    assert (keys[nan] == winner).all()


def test_negative_zero_is_less_than_zero():
    keys = order_keys.to_keys(np.array([-0.0, 0.0], np.float32), Reduction.MAX)
    assert keys[0] < keys[1]
