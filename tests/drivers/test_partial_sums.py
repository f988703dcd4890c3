"""Partial sums as the engine's loops add and make them, at every instruction set here."""

import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_sim.golden.frames import PARTIAL_DTYPES
from afflux_sim.golden.merge import block_of_elements
from afflux_sim.golden.rounding import FORMATS
from afflux_sim.golden.sums import (
    Number,
    Special,
    add,
    number_of_partial,
    partial_of_number,
    unit_of_partial,
)
from tests.support.golden_tensors import DTYPES


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    best = _native.instruction_set()
    _native.use_instruction_set(request.param)
    try:
        yield request.param
    finally:
        _native.use_instruction_set(best)


def draw_integers(rng: random.Random, width: int, bits: int, count: int) -> list[int]:
    """Return some of up to so many bits, with what stands for no number among them."""
    least = -(2 ** (width - 1))
    specials = [least + 1, least + 2, least + 3, least + 4, 0, 1, -1, 2**32 - 1, -(2**31)]
    specials = [x for x in specials if x.bit_length() < width]
    return [
        rng.choice(specials)
        if rng.random() < 0.1
        else rng.randrange(-(2**bits), 2**bits) << rng.randrange(width - 1 - bits)
        for _ in range(count)
    ]


def doubles_hold(numbers: list[Number], unit: Fraction) -> bool:
    """Return whether each sum on the way to that of all has at most 53 bits."""
    total = 0
    for number in numbers:
        for integer in (int(number / unit) if isinstance(number, Fraction) else 0, total):
            if integer and (integer // (integer & -integer)).bit_length() > 53:
                return False
        total += int(number / unit) if isinstance(number, Fraction) else 0
    return not total or (total // (total & -total)).bit_length() <= 53


@pytest.mark.parametrize("dtype", PARTIAL_DTYPES)
def test_sums_of_partial_sums(instruction_set: str, dtype: int) -> None:
    name, width = PARTIAL_DTYPES[dtype]
    of = FORMATS[name]
    rng = random.Random(dtype)
    count = 64 if name == "float32" else 128
    held = 0
    for number in range(90):
        exponent = rng.choice([0, 1, 2 ** (of.exponent_bits) - 2, rng.randrange(256)])
        bits = min(rng.choice([3, 20, 30, 52, 60]), width - 9)
        sources = 1 + number % 3
        drawn = [draw_integers(rng, width, bits, count) for _ in range(sources)]
        missing: list[Number] = [Fraction(0)] * (number % 2)
        block = _native.SumBlock()
        kept = [
            block.add_partial(
                DTYPES.index(name), width, exponent, at == 0, block_of_elements(each, dtype)
            )
            for at, each in enumerate(drawn)
        ]
        out = np.empty(count * width // 32, np.int32)
        block.partial(DTYPES.index(name), width, exponent, not missing, out)
        columns = [
            [number_of_partial(x, exponent, of, width) for x in column]
            for column in zip(*drawn, strict=True)
        ]
        right = [
            partial_of_number(add([*column, *missing]), exponent, of, width) for column in columns
        ]
        least = -(2 ** (width - 1))
        unit = unit_of_partial(exponent, of, width)
        if all(doubles_hold(column, unit) for column in columns):
            assert all(kept)
            held += 1
        elif not kept[-1]:
            right = [least] * count
        if least in right:
            right = [least] * count
        assert np.array_equal(out, block_of_elements(right, dtype)), number
    assert held > 20


@pytest.mark.parametrize("dtype", PARTIAL_DTYPES)
@pytest.mark.parametrize("element", [0, 63])
def test_numbers_that_do_not_fit(instruction_set: str, dtype: int, element: int) -> None:
    """The first integers that are too great or too small, and halves of a unit."""
    name, width = PARTIAL_DTYPES[dtype]
    if name != "float32":
        return
    of, exponent = FORMATS[name], 130
    least = -(2 ** (width - 1))
    unit = unit_of_partial(exponent, of, width)
    for integer in (Fraction(2 ** (width - 1)), Fraction(least), Fraction(1, 2), Fraction(-3, 2),
                    Fraction(2 ** (width - 2)), Fraction(least, 2)):  # fmt: skip
        numbers = np.ones(64, np.float32)
        numbers[element] = float(integer * unit)
        block = _native.SumBlock()
        block.open(DTYPES.index(name), numbers)
        out = np.empty(width * 2, np.int32)
        block.partial(DTYPES.index(name), width, exponent, True, out)
        right = [partial_of_number(Fraction(float(x)), exponent, of, width) for x in numbers]
        if least in right:
            right = [least] * 64
        assert np.array_equal(out, block_of_elements(right, dtype)), integer


def test_a_block_that_is_not_summed_below_is_not_summed_above(instruction_set: str) -> None:
    for dtype, (name, width) in PARTIAL_DTYPES.items():
        count = 64 if name == "float32" else 128
        least = partial_of_number(Special.NOT_SUMMED, 1, FORMATS[name], width)
        block = _native.SumBlock()
        elements = [least, *[5] * (count - 1)]
        arguments = (DTYPES.index(name), width, 9)
        assert not block.add_partial(*arguments, True, block_of_elements(elements, dtype))
        assert not block.add_partial(*arguments, False, block_of_elements([1] * count, dtype))
        result = np.empty(64, np.int32)
        block.round(0, True, result)
        assert (result == -1).all()
        out = np.empty(count * width // 32, np.int32)
        block.partial(*arguments, True, out)
        assert np.array_equal(out, block_of_elements([least] * count, dtype))
        # The next one is in order.
        assert block.add_partial(*arguments, True, block_of_elements([7] * count, dtype))
