"""Accumulate: adds a contribution to a slot's word.

Proved: `tests/formal/align.py`. Tested: `tests/hdl/test_numbers.py`.
"""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.numbers import residue
from afflux_hdl.numbers.formats import Fixed

__all__ = ["Accumulate"]


class Accumulate(wiring.Component):
    """Adds what `Align` has made of a word of 32 bits to a slot's word.

    Latency: 1 cycle. Throughput: a word in each cycle. No back-pressure. No sum of up to 64 addends
    leaves the slot's range.

    Members:
        held: The slot's word; all zeros for the first addend. (The register in front of this can be
            cleared for that at no cost.)
        addend: The contribution.
        halves: The word has two elements.
        merged: The slot's new word, one cycle later.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "held": In(fixed.slot()),
                "addend": In(fixed.addend()),
                "halves": In(1),
                "merged": Out(fixed.slot()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cut = self._fixed.half
        slot = self.held.value

        # One chain of carries, with a place before each half. Below the lower half, and below the
        # upper one if there are two, that place adds up to the half's own carry. A wide element's
        # carry passes it.
        addend, carry = self.addend.value, self.addend.carry
        left = Cat(carry[0], addend[:cut], self.halves & carry[1], addend[cut:])
        right = Cat(Const(1, 1), slot[:cut], ~self.halves | carry[1], slot[cut:])
        total = Signal(len(left))
        m.d.comb += total.eq(left + right)
        m.d.sync += self.merged.value.eq(Cat(total[1 : cut + 1], total[cut + 2 :]))

        # A flag that both have is in both residues, and has to be in that of the sum once.
        flags = zip(self._fixed.flags(self.held), self._fixed.flags(self.addend), strict=True)
        twice = [residue.minus(held & addend) for held, addend in flags]
        terms = [self.held.residue, self.addend.residue, *twice]
        m.d.sync += [
            self.merged.special.eq(self.held.special.as_value() | self.addend.special.as_value()),
            self.merged.not_minus_zero.eq(self.held.not_minus_zero | self.addend.not_minus_zero),
            self.merged.residue.eq(residue.total(m, terms)),
        ]
        return m
