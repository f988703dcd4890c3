"""Proof: the lane ALU is what `docs/protocol.md` section 5.3 says of an element.

Of two elements that fit their residues one is chosen with its own, or they are equal; a sum's
residue is theirs added up, less one if it wrapped. (That this is the residue of the sum is
arithmetic, which takes z3 too long; `tests/hdl/test_lane_alu.py` tries it.)
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cat, Cover, Elaboratable, Module, Mux, Signal, Value

from afflux_hdl.contract import wire
from afflux_hdl.engine.lane_alu import LaneAlu
from afflux_hdl.lib import residue

__all__ = ["LaneAluHarness", "merged"]


def merged(opcode: Value, held: Value, arriving: Value) -> Value:
    """Return the 32-bit element that the protocol asks for."""
    signed = held.as_signed() < arriving.as_signed()
    by_opcode = {
        wire.Opcode.SUM: (held + arriving)[:32],
        wire.Opcode.MAX: Mux(signed, arriving, held),
        wire.Opcode.MIN: Mux(signed, held, arriving),
        wire.Opcode.UMIN: Mux(held < arriving, held, arriving),
    }
    assert len(by_opcode) == len(wire.Opcode)
    outcome: Value = by_opcode[wire.Opcode.SUM]
    for number, value in by_opcode.items():
        outcome = Mux(opcode == number, value, outcome)
    return outcome


class LaneAluHarness(Elaboratable):
    """Any elements with any residues, any opcode, in every cycle."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.alu = alu = LaneAlu()
        started, added, wraps, both_fit = Signal(), Signal(), Signal(), Signal()
        sum_residue = Signal(6)
        expected, overflow = Signal(32), Signal()
        m.d.comb += [
            alu.opcode.eq(AnySeq(2)),
            alu.fresh.eq(AnySeq(1)),
            alu.held.eq(AnySeq(32)),
            alu.arriving.eq(AnySeq(32)),
            alu.less.eq(alu.held < alu.arriving),
            alu.held_residue.eq(AnySeq(residue.RESIDUE_BITS)),
            alu.arriving_residue.eq(AnySeq(residue.RESIDUE_BITS)),
        ]
        total = alu.held.as_signed() + alu.arriving.as_signed()
        outside = (total < -(1 << 31)) | (total >= 1 << 31)
        check = alu.merged_residue
        by_rule = Cat((sum_residue - wraps - check) == 15 * n for n in range(-2, 3)).any()
        held, arriving = Signal(36), Signal(36)
        both = Cat(alu.merged, check)
        equal = (held[:32] == arriving[:32]) & (alu.merged == held[:32])
        of_either = (check == held[32:]) | (check == arriving[32:])
        chosen = (both == held) | (both == arriving) | (equal & of_either)
        m.d.sync += [
            started.eq(1),
            added.eq(~alu.fresh & (alu.opcode == wire.Opcode.SUM)),
            sum_residue.eq(alu.held_residue + alu.arriving_residue),
            both_fit.eq(
                residue.fits(m, alu.held, alu.held_residue)
                & residue.fits(m, alu.arriving, alu.arriving_residue)
            ),
            held.eq(Cat(alu.held, alu.held_residue)),
            arriving.eq(Cat(alu.arriving, alu.arriving_residue)),
            wraps.eq((alu.held + alu.arriving)[32]),
            expected.eq(Mux(alu.fresh, alu.arriving, merged(alu.opcode, alu.held, alu.arriving))),
            overflow.eq(~alu.fresh & (alu.opcode == wire.Opcode.SUM) & outside),
        ]
        with m.If(started):
            m.d.comb += [
                Assert(alu.merged == expected, "element"),
                Assert(alu.overflow == overflow, "overflow"),
                Assert(Mux(added, by_rule, chosen | ~both_fit), "residue"),
                Cover(alu.overflow, "a sum overflows"),
            ]
        return m
