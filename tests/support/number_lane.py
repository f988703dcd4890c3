"""One lane of the sum of numbers, from words that arrive to words that leave, and what it must say.

The reference knows nothing of slots: it adds rational numbers.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.sim import Simulator

from afflux_hdl.lib import residue
from afflux_hdl.numbers.accumulate import Accumulate
from afflux_hdl.numbers.align import Align
from afflux_hdl.numbers.formats import GUARD_BITS, Fixed, Format
from afflux_hdl.numbers.round import Round
from afflux_sim.golden import rounding

__all__ = [
    "ALIGN_CYCLES",
    "TINY",
    "Block",
    "NumberLane",
    "expected",
    "results",
    "simulate",
    "value_of",
]

ALIGN_CYCLES, ACCUMULATE_CYCLES = 3, 1

TINY = Fixed(28, Format(5, 10), (Format(4, 3), Format(5, 2)))
"""Small formats with the relations of the real ones: proofs of them take seconds."""


@dataclass(frozen=True)
class Block:
    """Contributions to one word, one after the other.

    Attributes:
        dtype: 1, 2 or 3, as `wire.Dtype`.
        exponent: E.
        words: Of 32 bits, with one element or two.
        scale: k.
        all_present: Whether they are all.
    """

    dtype: int
    exponent: int
    words: Sequence[int]
    scale: int = 0
    all_present: bool = True


class NumberLane(Elaboratable):
    """Adds a word in each cycle, and rounds what there is so far.

    Attributes:
        latency: Cycles from a word to the result of all words up to it.
        flips: Bits of the word that flip before it comes in, after its residue has been taken.
        slot_flips: Bits of the slot's word that flip before it is rounded.
        wrong: The result is not to be used.
    """

    def __init__(self, fixed: Fixed) -> None:
        self.fixed = fixed
        self.latency = ALIGN_CYCLES + ACCUMULATE_CYCLES + 2 + len(fixed.strides)
        self.word = Signal(fixed.wide.bits)
        self.dtype = Signal(2)
        self.exponent = Signal(fixed.exponent_bits)
        self.scale = Signal(range(GUARD_BITS + 1))
        self.all_present = Signal()
        self.first = Signal()
        self.flips = Signal(fixed.wide.bits)
        self.slot_flips = Signal(fixed.slot_bits)
        self.wrong = Signal()
        self.result = Signal(fixed.wide.bits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.align = align = Align(self.fixed)
        m.submodules.accumulate = accumulate = Accumulate(self.fixed)
        m.submodules.round = round_ = Round(self.fixed)
        m.d.comb += [
            align.word.eq(self.word ^ self.flips),
            align.residue.eq(self.word % 15),
            align.dtype.eq(self.dtype),
            align.exponent.eq(self.exponent),
            self.result.eq(round_.word),
            self.wrong.eq(round_.wrong | ~residue.fits(m, round_.word, round_.check)),
        ]
        beside = Cat(self.first, self.dtype, self.exponent, self.scale, self.all_present)
        for n in range(ALIGN_CYCLES + ACCUMULATE_CYCLES):
            if n == ALIGN_CYCLES:
                lost = Signal()
                first, halves = beside[0], beside[2]
                m.d.sync += lost.eq(align.lost | (lost & ~first))
                m.d.comb += [
                    accumulate.held.eq(Mux(first, 0, accumulate.merged.as_value())),
                    accumulate.addend.eq(align.o),
                    accumulate.halves.eq(halves),
                ]
            later = Signal(len(beside), name=f"beside_{n}")
            m.d.sync += later.eq(beside)
            beside = later
        unused = Signal()
        m.d.comb += [
            Cat(unused, round_.dtype, round_.exponent, round_.scale, round_.all_present).eq(beside),
            round_.slot.eq(accumulate.merged),
            round_.slot.value.eq(accumulate.merged.value ^ self.slot_flips),
            round_.lost.eq(lost),
        ]
        return m


def results(fixed: Fixed, blocks: Iterable[Block]) -> list[list[int]]:
    """Return for each block what the lane makes of its first word, its first two, and so on."""
    lane = NumberLane(fixed)
    sent = [(block, n) for block in blocks for n in range(len(block.words))]
    found: list[list[int]] = []

    async def testbench(ctx: Any) -> None:
        for cycle in range(len(sent) + lane.latency):
            if cycle < len(sent):
                block, n = sent[cycle]
                ctx.set(lane.word, block.words[n])
                ctx.set(lane.first, n == 0)
                if n == 0:
                    ctx.set(lane.dtype, block.dtype)
                    ctx.set(lane.exponent, block.exponent)
                    ctx.set(lane.scale, block.scale)
                    ctx.set(lane.all_present, block.all_present)
            if cycle >= lane.latency:
                if sent[cycle - lane.latency][1] == 0:
                    found.append([])
                found[-1].append(ctx.get(lane.result))
                assert not ctx.get(lane.wrong)
            await ctx.tick()

    simulate(lane, testbench)
    return found


def simulate(lane: NumberLane, testbench: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Run a testbench."""
    simulator = Simulator(lane)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def value_of(element: int, form: Format) -> Fraction | str:
    """Return an element's value, or `inf`, `-inf` or `nan`."""
    fraction = element & ((1 << form.fraction_bits) - 1)
    exponent = element >> form.fraction_bits & form.exponent_max
    negative = element >> form.bits - 1
    if exponent == form.exponent_max:
        return "nan" if fraction else "-inf" if negative else "inf"
    significand = fraction | (bool(exponent) << form.fraction_bits)
    value = significand * Fraction(2) ** (max(exponent, 1) - _bias(form) - form.fraction_bits)
    return -value if negative else value


def expected(fixed: Fixed, block: Block) -> list[int]:
    """Return for a block what must come of its first word, its first two, and so on."""
    form = (fixed.wide, fixed.wide, *fixed.halves)[block.dtype]
    elements = fixed.wide.bits // form.bits
    columns = []
    for e in range(elements):
        column = [word >> e * form.bits & ((1 << form.bits) - 1) for word in block.words]
        columns.append(_sums(fixed, form, block, column))
    ones = (1 << form.bits) - 1
    outcome = []
    for rows in zip(*columns, strict=True):
        lost = any(row is None for row in rows)
        words = (ones if lost else row << e * form.bits for e, row in enumerate(rows))
        outcome.append((1 << fixed.wide.bits) - 1 if lost else sum(words))
    return outcome


def _bias(form: Format) -> int:
    return form.exponent_max >> 1


def _sums(fixed: Fixed, form: Format, block: Block, column: list[int]) -> list[int | None]:
    """Return the sum of each beginning of a column of elements, or None from a lost one on."""
    rounded = rounding.Format(form.exponent_bits, form.fraction_bits)
    bits = fixed.slot_bits * form.bits // fixed.wide.bits
    unit = Fraction(2) ** (block.exponent - _bias(form) - (bits - 2 - GUARD_BITS))
    sign = 1 << form.bits - 1
    total, specials, minus_zeros, lost = Fraction(0), set(), True, False
    sums: list[int | None] = []
    for element in column:
        value = value_of(element, form)
        minus_zeros &= element == sign
        if isinstance(value, str):
            specials.add(value)
        else:
            exponent = element >> form.fraction_bits & form.exponent_max
            lost |= value % unit != 0 or (value != 0 and max(exponent, 1) > block.exponent)
            total += value
        scaled = total / 2**block.scale
        magnitude = rounding.round_to_bits(abs(scaled.numerator), scaled.denominator, rounded)
        if lost:
            sums.append(None)
        elif "nan" in specials or len(specials) == 2:
            sums.append(rounded.nan)
        elif specials:
            sums.append(rounded.infinity | sign * ("-inf" in specials))
        elif total:
            sums.append(magnitude | sign * (total < 0))
        else:
            sums.append(sign * (minus_zeros and block.all_present))
    return sums
