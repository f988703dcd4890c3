"""Proof: a slot's word is rounded as its definition says, whatever it holds.

The definition, one step after the other: the magnitude, the place of its leading bit, the exponent
field that belongs to it and at least that of the least normal number, the bits above the place of
that exponent's last one, and what is left below, which is compared with a half.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Assert,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    Signal,
    Value,
)

from afflux_hdl.numbers.formats import GUARD_BITS, Fixed, Format, Special
from afflux_hdl.numbers.round import Round
from tests.support.number_lane import TINY

__all__ = ["RoundHarness"]


class RoundHarness(Elaboratable):
    """Anything in a slot, with any exponent that a block can have, in every cycle.

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
        m.submodules.round = part = Round(f)
        form = (f.wide, f.wide, *f.halves)[self._dtype]
        elements = f.wide.bits // form.bits
        size = f.slot_bits // elements
        latency = 2 + len(f.strides)

        given = (part.slot.as_value(), part.exponent, part.scale, part.all_present, part.lost)
        inputs = AnySeq(sum(map(len, given)))
        m.d.comb += [
            Cat(*given).eq(inputs),
            part.dtype.eq(self._dtype),
        ]
        count = Signal(range(latency + 1))
        with m.If(count != latency):
            m.d.sync += count.eq(count + 1)
        was: Value = Cat(*given)
        for n in range(latency):
            later = Signal(len(was), name=f"was_{n}")
            m.d.sync += later.eq(was)
            was = later
        slot, exponent, scale = Signal(f.slot()), Signal(f.exponent_bits), Signal(3)
        all_present, lost = Signal(), Signal()
        m.d.comb += Cat(slot, exponent, scale, all_present, lost).eq(was)
        # A block has an exponent of finite elements.
        possible = Signal()
        in_range = (exponent != 0) & (exponent < form.exponent_max) & (scale <= GUARD_BITS)
        m.d.comb += possible.eq(in_range)
        if elements == 1:
            # Of a wide element both halves say the same.
            flags = Cat(slot.special, slot.not_minus_zero)
            m.d.comb += possible.eq(in_range & (flags[:2] == flags[2:4]) & (flags[4] == flags[5]))
        for n in range(elements):
            value = slot.value[n * size : (n + 1) * size]
            rounded = self._rounded(m, form, value, exponent, scale, n)
            special = slot.special[n]
            infinity = Const(form.exponent_max << form.fraction_bits, form.bits)
            sign = Const(1 << form.bits - 1, form.bits)
            expected = Signal(form.bits, name=f"expected_{n}")
            with m.If(lost):
                m.d.comb += expected.eq(-1)
            with m.Elif(special == Special.NAN):
                m.d.comb += expected.eq(infinity | 1 << form.fraction_bits - 1)
            with m.Elif(special == Special.MINUS_INFINITY):
                m.d.comb += expected.eq(infinity | sign)
            with m.Elif(special == Special.INFINITY):
                m.d.comb += expected.eq(infinity)
            with m.Elif(~slot.not_minus_zero[n] & all_present):
                m.d.comb += expected.eq(sign)
            with m.Else():
                m.d.comb += expected.eq(rounded)
            with m.If((count == latency) & possible):
                got = part.word[n * form.bits : (n + 1) * form.bits]
                m.d.comb += [
                    Assert((got == expected) | self._excluded(slot, value, n)),
                    Cover((got == 1) & (scale == 3), "the least number"),
                    Cover((got == infinity) & (special == 0), "a sum too large"),
                ]
        return m

    @staticmethod
    def _excluded(slot: Value, value: Value, n: int) -> Value:
        """Return whether no sum is so: -0 that is not 0, or less than 64 elements can be."""
        return (~slot.not_minus_zero[n] & value.any()) | (~value[:-1].any() & value[-1])

    @staticmethod
    def _rounded(m: Module, form: Format, value: Value, exponent: Value, k: Value, n: int) -> Value:
        """Return the number nearest to a value of a slot."""
        size, fraction = len(value), form.fraction_bits
        magnitude, leading = Signal(size, name=f"magnitude_{n}"), Signal(range(size))
        m.d.comb += magnitude.eq(Mux(value[-1], -value, value))
        for place in range(size):
            with m.If(magnitude[place]):
                m.d.comb += leading.eq(place)
        # The exponent field of a number whose leading bit is at the place of the hidden bit: E - k.
        own = Signal(12, name=f"own_{n}")
        above = Signal(12, name=f"above_{n}")
        place = Signal(range(2 * size), name=f"place_{n}")
        scaled = exponent - k + leading - Fixed.hidden(size)
        m.d.comb += [
            own.eq(Mux(scaled < 1, 1, scaled)),
            # Of its last bit, with so many places more below all bits that it is never negative.
            above.eq(own + Fixed.hidden(size) - exponent + k),
            place.eq(above + 1),
        ]
        wide = Signal(size + fraction + 1, name=f"wide_{n}")
        kept, rest = Signal(size + fraction + 1, name=f"kept_{n}"), Signal.like(wide)
        half = Signal.like(wide, name=f"half_{n}")
        m.d.comb += [
            wide.eq(magnitude << fraction + 1),
            kept.eq(wide >> place),
            rest.eq(wide - (kept << place)[: len(wide)]),
            half.eq((1 << place) >> 1),
        ]
        up = (rest > half) | ((rest == half) & kept[0])
        bits, infinity = Signal(form.bits + 5, name=f"bits_{n}"), form.exponent_max << fraction
        m.d.comb += bits.eq(((own - 1) << fraction) + kept + up)
        found = Mux(magnitude == 0, 0, Mux(bits > infinity, infinity, bits))
        return Cat(found[: form.bits - 1], value[-1])
