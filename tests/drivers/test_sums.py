"""Correctly rounded sums against rationals, at every instruction set of this machine."""

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux_drivers import _native
from afflux_hdl.contract import wire
from tests.support.drivers.tensors import FLOATS, bits_of, from_bits

FORMATS = {wire.Dtype.FLOAT32: (8, 23), wire.Dtype.FLOAT16: (5, 10), wire.Dtype.BFLOAT16: (8, 7)}
BLOCK_BYTES = 4 * wire.BLOCK_ELEMENTS


class Format:
    """A floating-point format and its numbers as rationals."""

    def __init__(self, dtype: wire.Dtype) -> None:
        self.exponent, self.fraction = FORMATS[dtype]
        self.infinity = (2**self.exponent - 1) << self.fraction
        self.sign = 1 << (self.exponent + self.fraction)
        self.nan = self.infinity | 1 << (self.fraction - 1)
        self.bits = 1 + self.exponent + self.fraction
        self.least = 2 - 2 ** (self.exponent - 1) - self.fraction

    def value(self, bits: int) -> Fraction | str:
        field, fraction = divmod(bits & ~self.sign, 1 << self.fraction)
        if field == 2**self.exponent - 1:
            return "nan" if fraction else "-inf" if bits & self.sign else "inf"
        significand = fraction | (1 << self.fraction if field else 0)
        magnitude = significand * Fraction(2) ** (max(field, 1) - 1 + self.least)
        return -magnitude if bits & self.sign else magnitude

    def rounded(self, value: Fraction) -> int:
        """Round to nearest, ties to even; a number that is not zero keeps its sign."""
        magnitude = abs(value)
        if magnitude == 0:
            return 0
        leading = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        power = max(leading - 1 - self.fraction, self.least)
        if magnitude >= Fraction(2) ** (power + self.fraction + 1):
            power += 1
        units = round(magnitude / Fraction(2) ** power)  # Python's own: ties to even
        # A carry into the next power makes the fields right by itself.
        bits = ((power - self.least) << self.fraction) + units
        return min(bits, self.infinity) | (self.sign if value < 0 else 0)

    def sum(self, elements: Sequence[int], scale: int, all_present: bool = True) -> int:
        values = [self.value(bits) for bits in elements]
        if "nan" in values or {"inf", "-inf"} <= set(values):
            return self.nan
        for special in ("inf", "-inf"):
            if special in values:
                return self.infinity | (self.sign if special == "-inf" else 0)
        total = sum((each for each in values if isinstance(each, Fraction)), Fraction(0))
        if total == 0:
            return self.sign if all_present and set(elements) == {self.sign} else 0
        return self.rounded(total / 2**scale)


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    best = _native.instruction_set()
    _native.use_instruction_set(request.param)
    try:
        yield request.param
    finally:
        _native.use_instruction_set(best)


@st.composite
def cases(draw: st.DrawFn) -> tuple[wire.Dtype, list[int], int, bool]:
    """Draw elements that are any, similar, opposite or next to each other, and a form of sum."""
    dtype = draw(st.sampled_from(FLOATS))
    form = Format(dtype)
    any_bits = st.integers(0, 2**form.bits - 1)
    first = draw(any_bits)
    near = st.integers(-2, 2).map(lambda n: (first + n) % 2**form.bits)
    opposite = near.map(lambda bits: bits ^ form.sign)
    similar = st.integers(0, 2 << form.fraction).map(lambda n: first & form.infinity | n)
    special = st.sampled_from([0, form.sign, 1, form.sign | 1, form.infinity - 1, form.nan])
    one = st.one_of(any_bits, near, opposite, similar.map(lambda n: n % 2**form.bits), special)
    others = draw(st.lists(one, max_size=63))
    return dtype, [first, *others], draw(st.integers(0, 6)), draw(st.booleans())


def by_arrays(dtype: wire.Dtype, elements: Sequence[int], scale: int, all_present: bool) -> int:
    tensors = [from_bits([bits] * 3, dtype) for bits in elements]
    out = np.empty_like(tensors[0])
    _native.exact_sums(int(dtype), scale, all_present, tensors, out)
    assert len(set(bits_of(out).tolist())) == 1
    return int(bits_of(out)[0])


def by_block(
    dtype: wire.Dtype, elements: Sequence[int], scale: int, all_present: bool
) -> int | None:
    """Return the sum of a block's first element, or None if it is not summed."""
    block, exact = _native.SumBlock(), True
    for number, bits in enumerate(elements):
        contribution = np.zeros(BLOCK_BYTES, np.uint8).view(from_bits([0], dtype).dtype)
        contribution[:1] = from_bits([bits], dtype)
        if number:
            exact = block.add(contribution)
        else:
            block.open(int(dtype), contribution)
    out = np.empty_like(contribution)
    block.round(scale, all_present, out)
    found = bits_of(out)
    if exact:
        assert not found[1:].any()
        return int(found[0])
    assert (found.view(np.uint8) == 0xFF).all()
    return None


@settings(max_examples=400, deadline=None, derandomize=True)
@given(cases())
def test_sums_are_those_of_rationals(case):
    dtype, elements, scale, all_present = case
    want = Format(dtype).sum(elements, scale, all_present)
    assert _native.exact_sum(int(dtype), scale, all_present, elements) == want
    best = _native.instruction_set()
    try:
        for name in _native.instruction_sets():
            _native.use_instruction_set(name)
            assert by_arrays(dtype, elements, scale, all_present) == want
            for order in (elements, sorted(elements), elements[::-1]):
                assert by_block(dtype, order, scale, all_present) in (want, None)
    finally:
        _native.use_instruction_set(best)


def test_a_sum_is_in_order_after_one_that_is_not(instruction_set):
    """The flag of an inexact sum, or of its rounding, does not stay for the next."""
    dtype = wire.Dtype.FLOAT32
    inexact = from_bits([0x7F000000, 1], dtype)
    assert by_block(dtype, bits_of(inexact).tolist(), 0, True) is None
    third = bits_of(np.array([1, 2**-25, -(2**-30)], np.float32)).tolist()
    assert by_block(dtype, third, 0, True) == Format(dtype).sum(third, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_more_elements_than_a_job_has_ranks(dtype):
    form = Format(dtype)
    chance = np.random.default_rng(3)
    for count in (65, 200):
        elements = [int(each) for each in chance.integers(0, form.infinity, count)]
        elements[::3] = [bits | form.sign for bits in elements[::3]]
        assert by_arrays(dtype, elements, 8, True) == form.sum(elements, 8)


@pytest.mark.parametrize("dtype", [wire.Dtype.FLOAT16, wire.Dtype.BFLOAT16])
def test_averages_of_16_bits(instruction_set, dtype):
    """A sample of what sums_pairs_test.cpp divides."""
    form = Format(dtype)
    every = np.arange(1 << 16, dtype=np.uint16)
    sums = every.view(np.float16) if dtype is wire.Dtype.FLOAT16 else every
    for ranks in range(1, 65):
        scale = _native.average_scale(ranks)
        assert scale == (ranks - 1).bit_length()
        if ranks == 1 << scale:
            continue
        found = sums.copy()
        _native.divide_sums(int(dtype), ranks, found)
        sample = range(ranks % 509, 1 << 16, 509)
        for bits in itertools.chain(sample, (form.infinity, form.sign, 1, form.infinity - 1)):
            value = form.value(bits)
            if isinstance(value, Fraction):
                sign = bits & form.sign
                want = form.rounded(abs(value) * 2**scale / ranks) | sign
            else:
                want = form.nan if value == "nan" else bits
            assert int(bits_of(found)[bits]) == want


def test_averages_of_float32(instruction_set):
    form = Format(wire.Dtype.FLOAT32)
    generator = np.random.default_rng(1)
    some = generator.integers(0, 2**32, 130, dtype=np.uint32)
    some[:6] = [0, form.sign, 1, form.infinity, form.infinity + 1, form.infinity - 1]
    for ranks in (3, 5, 7, 48, 63):
        found = some.view(np.float32).copy()
        _native.divide_sums(int(wire.Dtype.FLOAT32), ranks, found)
        for bits, is_ in zip(some.tolist(), bits_of(found).tolist(), strict=True):
            value = form.value(bits)
            if isinstance(value, Fraction):
                scale = _native.average_scale(ranks)
                want = form.rounded(abs(value) * 2**scale / ranks) | bits & form.sign
            else:
                want = form.nan if value == "nan" else bits
            assert is_ == want


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("greatest", [True, False])
def test_extremes(instruction_set, dtype, greatest):
    """Every pair of awkward numbers; NaN wins, and -0 is less than 0."""
    form = Format(dtype)
    awkward = [0, 1, form.infinity - 1, form.infinity, form.infinity + 1, form.nan]
    awkward += [1 << form.fraction, form.infinity // 2, form.infinity // 2 + 1]
    awkward += [bits | form.sign for bits in awkward]
    pairs = list(itertools.product(awkward, repeat=2))
    count = BLOCK_BYTES // from_bits([0], dtype).itemsize
    pairs += [(0, 0)] * (-len(pairs) % count)

    def order(bits: int) -> tuple[Fraction, int]:
        value = form.value(bits)
        infinite = Fraction(2) ** 200
        number = value if isinstance(value, Fraction) else infinite * (-1 if "-" in value else 1)
        return number, 0 if bits & form.sign else 1

    for start in range(0, len(pairs), count):
        own = from_bits([pair[0] for pair in pairs[start : start + count]], dtype)
        arriving = from_bits([pair[1] for pair in pairs[start : start + count]], dtype)
        _native.extreme_blocks(int(dtype), greatest, own, arriving)
        for pair, found in zip(pairs[start : start + count], bits_of(own).tolist(), strict=True):
            if "nan" in map(form.value, pair):
                assert found == form.nan
            else:
                assert found == (max if greatest else min)(pair, key=order)


def test_what_is_refused():
    floats = np.zeros(64, np.float32)
    for scale in (-1, 31):
        with pytest.raises(ValueError, match="0 to 30"):
            _native.exact_sums(int(wire.Dtype.FLOAT32), scale, True, [floats], floats)
    with pytest.raises(ValueError, match="of floats"):
        _native.exact_sums(int(wire.Dtype.INT32), 0, True, [floats], floats)
    with pytest.raises(ValueError, match="an element at least"):
        _native.exact_sums(int(wire.Dtype.FLOAT32), 0, True, [], floats)
