"""Lane ALU: merges one element of a block with the element that the slot holds.

Elements come with their residues modulo 15 (`afflux_hdl.lib.residue`). The residue of what is
merged is made from these alone, and from a second comparison: a bit that flips in the adder, in the
comparison or in a register gives an element that does not fit its residue. So does an element that
loses a comparison and does not fit its own: had it not flipped, it might have won.

Proved: `tests/formal/lane_alu.py`. Tested: `tests/hdl/test_lane_alu.py`,
`tests/sim/test_engine_numbers.py`.
"""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.lib import residue

__all__ = ["LaneAlu"]


class LaneAlu(wiring.Component):
    """Merges two 32-bit elements.

    Latency: 1 cycle. Throughput: one element in each cycle. No back-pressure. SUM wraps modulo
    2**32; `overflow` reports that the true sum is not an int32.

    Members:
        opcode: One of `wire.Opcode`.
        fresh: The slot holds nothing yet: take `arriving` as it is.
        held, arriving: Elements.
        held_residue, arriving_residue: Their residues.
        merged: The merged element, one cycle later.
        merged_residue: Its residue, one cycle later.
        overflow: A SUM left the range of int32, one cycle later.
        less: `held` is less than `arriving`, without signs, which somebody else compares too.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "opcode": In(2),
                "fresh": In(1),
                "held": In(32),
                "arriving": In(32),
                "held_residue": In(residue.RESIDUE_BITS),
                "arriving_residue": In(residue.RESIDUE_BITS),
                "merged": Out(32),
                "merged_residue": Out(residue.RESIDUE_BITS),
                "overflow": Out(1),
                "less": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held, arriving = self.held.as_signed(), self.arriving.as_signed()
        total = Signal(signed(33))
        signed_less, keep_held = Signal(), Signal()
        differs = Signal()
        m.d.comb += [
            total.eq(held + arriving),
            # One comparison serves both orders: unlike signs reverse the unsigned one.
            differs.eq(self.held[31] ^ self.arriving[31]),
            signed_less.eq(self.less ^ differs),
        ]
        with m.Switch(self.opcode):
            with m.Case(wire.Opcode.MAX):
                m.d.comb += keep_held.eq(~signed_less)
            with m.Case(wire.Opcode.MIN):
                m.d.comb += keep_held.eq(signed_less)
            with m.Default():
                m.d.comb += keep_held.eq(self.less)
        adds = Signal()
        m.d.comb += adds.eq(self.opcode == wire.Opcode.SUM)
        with m.If(self.fresh):
            m.d.sync += self.merged.eq(self.arriving)
        with m.Elif(adds):
            m.d.sync += self.merged.eq(total[:32])
        with m.Else():
            m.d.sync += self.merged.eq(Mux(keep_held, self.held, self.arriving))
        m.d.sync += self.overflow.eq(~self.fresh & adds & (total[32] ^ total[31]))

        # The residue chooses by the opposite comparison, which a tool cannot make one with the
        # other. They differ where the elements are equal, and so are their residues.
        unsigned_more, signed_more, keep_residue = Signal(), Signal(), Signal()
        m.d.comb += [
            unsigned_more.eq(self.arriving < self.held),
            signed_more.eq(unsigned_more ^ differs),
        ]
        with m.Switch(self.opcode):
            with m.Case(wire.Opcode.MAX):
                m.d.comb += keep_residue.eq(signed_more)
            with m.Case(wire.Opcode.MIN):
                m.d.comb += keep_residue.eq(~signed_more)
            with m.Default():
                m.d.comb += keep_residue.eq(~unsigned_more)
        # A sum modulo 2**32 that wraps counts one less, which is corrected one cycle later. It is
        # taken off as well, so that nothing fits, where what is not chosen was not right.
        summed, chosen = Signal(residue.RESIDUE_BITS), Signal(residue.RESIDUE_BITS)
        sums, wrapped = Signal(), Signal()
        kept, held_wrong, arriving_wrong = Signal(), Signal(), Signal()
        m.d.sync += [
            summed.eq(residue.add(m, self.held_residue, self.arriving_residue)),
            sums.eq(adds & ~self.fresh),
            wrapped.eq(adds & ~self.fresh & (total[32] ^ differs)),
            kept.eq(keep_residue),
        ]
        with m.If(self.fresh | ~keep_residue):
            m.d.sync += chosen.eq(self.arriving_residue)
        with m.Else():
            m.d.sync += chosen.eq(self.held_residue)
        for wrong, word, check in (
            (held_wrong, self.held, self.held_residue),
            (arriving_wrong, self.arriving, self.arriving_residue),
        ):
            m.d.sync += wrong.eq(~(self.fresh | adds | residue.fits(m, word, check)))
        m.d.comb += self.merged_residue.eq(
            residue.less_one(
                m,
                Mux(sums, summed, chosen),
                wrapped | Mux(kept, arriving_wrong, held_wrong),
            )
        )
        return m
