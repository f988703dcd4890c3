"""Sums of numbers against rational numbers, rounded once."""

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
from amaranth.hdl import Module

from afflux_hdl.contract.wire import Dtype
from afflux_hdl.numbers.align import Align
from afflux_hdl.numbers.formats import Fixed, Format
from afflux_hdl.numbers.round import Round
from tests.support.number_lane import (
    ALIGN_CYCLES,
    TINY,
    Block,
    NumberLane,
    expected,
    results,
    simulate,
    value_of,
)
from tests.support.overriding import overriding

FIXED = Fixed()
FORMATS = (FIXED.wide, FIXED.wide, *FIXED.halves)
DTYPES = (Dtype.FLOAT32, Dtype.FLOAT16, Dtype.BFLOAT16)
ALL_ONES = 0xFFFFFFFF


def element(form: Format, exponent: int, fraction: int, negative: int = 0) -> int:
    assert 0 <= exponent <= form.exponent_max
    return (negative << form.exponent_bits | exponent) << form.fraction_bits | fraction


def of_any(choose: random.Random, form: Format, least: int, most: int) -> int:
    """Return an element with an exponent field in this range, and a fraction that matters."""
    ones = (1 << form.fraction_bits) - 1
    fractions = (0, 1, ones, 1 << choose.randrange(form.fraction_bits), choose.randint(0, ones))
    exponent = choose.randint(max(0, least), max(0, most))
    return element(form, exponent, choose.choice(fractions), choose.getrandbits(1))


def gradients(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return elements of which the greatest is at E, and most are a little smaller."""
    return [
        of_any(choose, form, 0, max(0, top - min(int(choose.expovariate(0.4)), 12)))
        if n
        else of_any(choose, form, top, top)
        for n in range(count)
    ]


def near(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return elements that a slot of 40 bits holds: nothing is lost."""
    return [of_any(choose, form, top - 2, top) for _ in range(count)]


def anything(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return any bits: infinities and NaNs, and exponents above E."""
    return [choose.getrandbits(form.bits) for _ in range(count)]


def cancelling(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return pairs that add up to nothing, and a small element behind each."""
    pairs = []
    for _ in range(count // 3 + 1):
        x = of_any(choose, form, top - 1, top)
        pairs += [x, x ^ element(form, 0, 0, 1), of_any(choose, form, top - 2, top - 2)]
    return pairs


def ties(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return numbers, each with half of what its last bit is worth, and something small."""
    low = max(0, top - form.fraction_bits - 1)
    pairs = []
    for _ in range(count // 3 + 1):
        x = of_any(choose, form, top, top)
        pairs += [x, element(form, low, 0, choose.getrandbits(1)), of_any(choose, form, 0, low)]
    return pairs


def huge(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return one huge element among small ones."""
    low = max(0, top - 20)
    return [of_any(choose, form, top, top), *(of_any(choose, form, low, low) for _ in range(count))]


def greatest(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return 64 times the greatest element, of one sign."""
    ones, negative = (1 << form.fraction_bits) - 1, choose.getrandbits(1)
    return [element(form, top, ones, negative)] * 64


def zeros(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return zeros of either sign, most of them negative."""
    minus = element(form, 0, 0, 1)
    return [choose.choice((minus, minus, minus, 0)) for _ in range(count)]


def specials(choose: random.Random, form: Format, top: int, count: int) -> list[int]:
    """Return numbers with an infinity or a NaN now and then."""
    most = element(form, form.exponent_max, 0)
    some = (most, most | element(form, 0, 0, 1), most | 1)
    return [choose.choice((*some, *[of_any(choose, form, top, top)] * 9)) for _ in range(count)]


KINDS = (gradients, near, anything, cancelling, ties, huge, greatest, zeros, specials)


def blocks_of(kind: Callable, dtype: Dtype, count: int, seed: int, most: int = 6) -> list[Block]:
    """Return blocks of one kind, with exponents over the whole range and at its ends.

    Each is of up to `most` contributions, but for those of which the kind says how many.
    """
    choose, form = random.Random(f"{kind.__name__} {dtype} {seed}"), FORMATS[dtype]
    ends = (1, 2, form.exponent_max - 1, form.exponent_max // 2)
    blocks = []
    for n in range(count):
        top = ends[n] if n < len(ends) else choose.randint(1, form.exponent_max - 1)
        length = choose.randint(1, most)
        columns = [kind(choose, form, top, length) for _ in range(FIXED.wide.bits // form.bits)]
        rows = zip(*columns, strict=True)
        words = [sum(x << n * form.bits for n, x in enumerate(row)) for row in rows]
        blocks.append(Block(dtype, top, words, choose.randrange(7), choose.random() < 0.7))
    return blocks


def differing(fixed: Fixed, blocks: list[Block]) -> list[str]:
    """Say of each block with a wrong sum which it is."""
    wrong = []
    for block, found in zip(blocks, results(fixed, blocks), strict=True):
        for n, (got, want) in enumerate(zip(found, expected(fixed, block), strict=True)):
            if got != want:
                words = [hex(word) for word in block.words[: n + 1]]
                wrong.append(f"{block} after {words}: {got:#x}, not {want:#x}")
                break
    return wrong


@pytest.mark.parametrize(
    ("dtype", "slot_bits"),
    [
        # Each dtype and each width; the others are for the long tests.
        pytest.param(*each, marks=() if n in (0, 4, 8) else pytest.mark.long)
        for n, each in enumerate(product(DTYPES, (64, 48, 40)))
    ],
)
def test_sums_are_exact_and_rounded_once(dtype: Dtype, slot_bits: int) -> None:
    blocks = [block for kind in KINDS for block in blocks_of(kind, dtype, 3, slot_bits)]
    assert differing(Fixed(slot_bits), blocks) == []


@pytest.mark.long
@pytest.mark.parametrize("slot_bits", [64, 48, 40])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_sums_are_exact_and_rounded_once(kind: Callable, dtype: Dtype, slot_bits: int) -> None:
    assert differing(Fixed(slot_bits), blocks_of(kind, dtype, 12, slot_bits, 64)) == []


BY_HAND: dict[str, tuple[tuple[int, ...], int, tuple[int, ...]]] = {
    "1 + 1": ((0x3F800000, 0x3F800000), 127, (0x3F800000, 0x40000000)),
    "1e10 + 1": ((0x501502F9, 0x3F800000), 160, (0x501502F9,) * 2),
    "... - 1e10": ((0x501502F9, 0x3F800001, 0xD01502F9), 160, (0x501502F9,) * 2 + (0x3F800001,)),
    "1 + 1e-10": ((0x3F800000, 0x2F0CBCCC, 0xBF800000), 127, (0x3F800000,) * 2 + (0x2F0CBCCC,)),
    "1 + 1e-12": ((0x3F800000, 0x2B8CBCCD), 127, (0x3F800000, ALL_ONES)),
    "tie to even, down": ((0x3F800000, 0x33800000), 127, (0x3F800000,) * 2),
    "tie, up": ((0x3F800001, 0x33800000), 127, (0x3F800001, 0x3F800002)),
    "tie, negative": ((0xBF800001, 0xB3800000), 127, (0xBF800001, 0xBF800002)),
    "too large": ((0x7F7FFFFF, 0x7F7FFFFF), 254, (0x7F7FFFFF, 0x7F800000)),
    "too small": ((0xFF7FFFFF, 0xFF7FFFFF), 254, (0xFF7FFFFF, 0xFF800000)),
    "subnormal": ((0x00000001, 0x00000001), 1, (0x00000001, 0x00000002)),
    "least normal": ((0x007FFFFF, 0x00000001), 1, (0x007FFFFF, 0x00800000)),
    "-0": ((0x80000000, 0x80000000, 0), 1, (0x80000000,) * 2 + (0,)),
    "1 - 1": ((0x3F800000, 0xBF800000), 127, (0x3F800000, 0)),
    "inf - inf": ((0x7F800000, 0xFF800000), 1, (0x7F800000, 0x7FC00000)),
    "-inf + 1": ((0xFF800000, 0x3F800000), 127, (0xFF800000,) * 2),
    "NaN": ((0xFF800123, 0x7F800000), 1, (0x7FC00000,) * 2),
    "above E": ((0x3F800000, 0x40000000, 0), 127, (0x3F800000,) + (ALL_ONES,) * 2),
    "below the slot": ((0x3F800000, 0x1F800000), 127, (0x3F800000, ALL_ONES)),
}
"""Of each sum of float32 the elements, E, and what their sums are, one by one."""


def test_float32() -> None:
    """By hand, so that no mistake of the reference is in it."""
    blocks = [Block(Dtype.FLOAT32, top, words) for words, top, _ in BY_HAND.values()]
    sums = [list(sums) for _, _, sums in BY_HAND.values()]
    found = dict(zip(BY_HAND, results(FIXED, blocks), strict=True))
    assert found == dict(zip(BY_HAND, sums, strict=True))
    assert [expected(FIXED, block) for block in blocks] == sums


def test_halves() -> None:
    """By hand: each half has a sum of its own, and -0 needs all workers."""
    float16 = Block(Dtype.FLOAT16, 15, (0xBC003C00, 0x3C003C01, 0x7E013C00))
    bfloat16 = Block(Dtype.BFLOAT16, 127, (0x3F80BF80, 0x3F803F80, 0xFF803C00), scale=1)
    missing = Block(Dtype.FLOAT16, 1, (0x80008000, 0x00018000), all_present=False)
    assert results(FIXED, [float16, bfloat16, missing]) == [
        [0xBC003C00, 0x00004000, 0x7E004200],
        [0x3F00BF00, 0x3F800000, 0xFF803B80],
        [0x00000000, 0x00010000],
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"slot_bits": 63},
        {"slot_bits": 66},
        {"slot_bits": 32},
        {"halves": (Format(5, 10), Format(8, 8))},
    ],
)
def test_formats_that_do_not_fit_are_refused(arguments: dict) -> None:
    with pytest.raises(ValueError, match=r"must be|does not fit"):
        Fixed(**arguments)


def test_a_slot_word_fits_into_an_ultra_ram() -> None:
    assert FIXED.slot().size == 72


def test_results_come_after_nine_cycles() -> None:
    """What the docstrings say: 3 to align, 1 to accumulate, 5 to round."""
    lane = NumberLane(FIXED)
    found = []

    async def testbench(ctx) -> None:
        ctx.set(lane.dtype, Dtype.FLOAT32)
        ctx.set(lane.exponent, 127)
        ctx.set(lane.first, 1)
        for n in range(20):
            ctx.set(lane.word, 0x3F800000 if n == 5 else 0)
            found.append(ctx.get(lane.result))
            await ctx.tick()

    simulate(lane, testbench)
    assert [n for n, result in enumerate(found) if result] == [5 + 9]


def test_halves_of_eight_bits_exhaustively() -> None:
    """Every element to exponents of the whole range, alone; their sums are proved."""
    form, tops = TINY.halves[0], (1, 7, 14)
    words = [word | (255 - word) << form.bits for word in range(1 << form.bits)]
    blocks = [Block(Dtype.FLOAT16, top, (word,)) for top in tops for word in words]
    assert differing(TINY, blocks) == []
    assert value_of(1, form) == Fraction(1, 2**9)


@pytest.mark.parametrize(
    "dtype",
    [Dtype.FLOAT32, Dtype.FLOAT16, pytest.param(Dtype.BFLOAT16, marks=pytest.mark.long)],
)
def test_a_flipped_bit_does_not_fit(dtype: Dtype) -> None:
    """Of a word that arrives, and of a slot: a result is wrong or lost. One at a time."""
    lane, form, choose = NumberLane(FIXED), FORMATS[dtype], random.Random(dtype)
    corners = (1, form.infinity, form.infinity - 1, 1 << form.fraction_bits)
    words = [sum(x << n for n in range(0, FIXED.wide.bits, form.bits)) for x in corners]
    words.append(choose.getrandbits(FIXED.wide.bits))
    flips = [(1 << n, 0) for n in range(FIXED.wide.bits)]
    flips += [(0, 1 << n) for n in range(FIXED.slot_bits)]
    cases = [(word, *flip) for word in words for flip in flips]
    nothing = (0, 0, 0)

    async def testbench(ctx) -> None:
        ctx.set(lane.dtype, dtype)
        ctx.set(lane.exponent, form.exponent_max - 1)
        ctx.set(lane.first, 1)
        for n in range(len(cases) + lane.latency):
            word, in_word, _ = cases[n] if n < len(cases) else nothing
            before = n - ALIGN_CYCLES - 1
            ctx.set(lane.word, word)
            ctx.set(lane.flips, in_word)
            ctx.set(lane.slot_flips, cases[before][2] if 0 <= before < len(cases) else 0)
            if n >= lane.latency:
                found = ctx.get(lane.result)
                assert ctx.get(lane.wrong) or found == ALL_ONES, cases[n - lane.latency]
            await ctx.tick()

    simulate(lane, testbench)


def subnormals_have_a_hidden_bit(m: Module, align: Align) -> None:
    m.d.sync += align.unpacked.bits[FIXED.hidden(FIXED.slot_bits)].eq(1)


def halves_go_up(m: Module, part: Round) -> None:
    m.d.sync += part.exact.found.rest.eq(3)


@pytest.mark.parametrize(
    ("part", "bug", "kind"),
    [(Align, subnormals_have_a_hidden_bit, zeros), (Round, halves_go_up, ties)],
)
def test_a_planted_bug_is_found(part: type, bug: Callable, kind: Callable) -> None:
    """By its sums, or by their residues."""
    with overriding(part, bug), pytest.raises(AssertionError):
        assert differing(FIXED, blocks_of(kind, Dtype.FLOAT32, 6, 1)) == []
