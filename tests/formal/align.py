"""Proof: what a contribution adds to a slot is its definition, for any word and any exponent E.

The definition, written with wide shifts: an element is its significand, in the place that its
distance below E gives it. It is lost if that distance is negative or a bit is below the slot's
lowest. Accumulate adds it to anything.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cat, Cover, Elaboratable, Module, Mux, Signal, Value

from afflux_hdl.numbers.accumulate import Accumulate
from afflux_hdl.numbers.align import Align
from afflux_hdl.numbers.formats import Fixed, Format, Special
from tests.support.number_lane import TINY

__all__ = ["AlignHarness"]

LATENCY = 4
"""Of both together."""


class AlignHarness(Elaboratable):
    """Any words with any exponents to anything that a slot holds, in every cycle.

    Args:
        dtype: As `wire.Dtype`.
        slot_bits: W.
        tiny: Of tiny formats instead.
    """

    def __init__(self, dtype: int, slot_bits: int = 64, tiny: bool = False) -> None:
        self._dtype = dtype
        self._fixed = TINY if tiny else Fixed(slot_bits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        m.submodules.align = align = Align(f)
        m.submodules.accumulate = accumulate = Accumulate(f)
        form = (f.wide, f.wide, *f.halves)[self._dtype]
        elements = f.wide.bits // form.bits

        arriving = AnySeq(f.wide.bits + f.exponent_bits)
        word, exponent = self._later(m, arriving, f.wide.bits, LATENCY)
        slot = AnySeq(f.slot().size)
        held, _ = self._later(m, slot, f.slot().size, 1)
        count = Signal(range(LATENCY + 1))
        with m.If(count != LATENCY):
            m.d.sync += count.eq(count + 1)
        lost = Signal()
        m.d.sync += lost.eq(align.lost)
        m.d.comb += [
            align.word.eq(arriving[: f.wide.bits]),
            align.residue.eq(AnySeq(4)),
            align.exponent.eq(arriving[f.wide.bits :]),
            align.dtype.eq(self._dtype),
            accumulate.addend.eq(align.o),
            accumulate.held.eq(slot),
            accumulate.halves.eq(self._dtype >> 1),
        ]
        before = Signal(f.slot())
        m.d.comb += before.eq(held)
        any_lost: Value = Signal()
        merged = accumulate.merged
        with m.If(count == LATENCY):
            for n in range(elements):
                size = f.slot_bits // elements
                place = slice(n * size, (n + 1) * size)
                own = word[n * form.bits : (n + 1) * form.bits]
                value, special, minus_zero, misses = self._defined(form, size, own, exponent)
                any_lost = any_lost | misses
                sums = Signal(size, name=f"sums_{n}")
                m.d.comb += [
                    sums.eq(before.value[place] + Mux(own[-1], -value, value)),
                    Assert((merged.value[place] == sums) | misses | special.any(), "value"),
                    Assert(merged.special[n] == (before.special[n] | special), "special"),
                    Assert(
                        merged.not_minus_zero[n] == (before.not_minus_zero[n] | ~minus_zero), "-0"
                    ),
                ]
            m.d.comb += [
                Assert(lost == any_lost, "lost"),
                Cover(lost & (exponent == 13), "an element is lost"),
                Cover(~lost & merged.special[0].all(), "a sum becomes NaN"),
            ]
        return m

    @staticmethod
    def _later(m: Module, value: Value, bits: int, cycles: int) -> tuple[Value, Value]:
        """Return the first bits of a value and the others, as they were so many cycles before."""
        for _ in range(cycles):
            later = Signal(len(value))
            m.d.sync += later.eq(value)
            value = later
        return value[:bits], value[bits:]

    @staticmethod
    def _defined(
        form: Format, size: int, element: Value, exponent: Value
    ) -> tuple[Value, Value, Value, Value]:
        """Return an element's magnitude in its place, its special, whether it is -0 or is lost."""
        fraction = element[: form.fraction_bits]
        field = element[form.fraction_bits : -1]
        special = field == form.exponent_max
        significand = Mux(special, 0, Cat(fraction, field.any()))
        distance = exponent - Mux(field == 0, 1, field)
        # With as many bits again behind the slot's lowest one.
        placed = significand << (size + Fixed.hidden(size) - form.fraction_bits)
        moved = (placed >> distance[:-1])[: 2 * size]
        misses = (significand != 0) & ((distance < 0) | (distance > size) | moved[:size].any())
        of_infinity = Mux(element[-1], Special.MINUS_INFINITY, Special.INFINITY)
        return (
            moved[size:],
            Mux(special, Mux(fraction.any(), Special.NAN, of_infinity), 0),
            element[-1] & (fraction == 0) & (field == 0),
            misses,
        )
