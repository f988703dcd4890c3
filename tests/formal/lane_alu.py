"""Proof: the lane ALU is what `docs/protocol.md` section 5.3 says of an element."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cover, Elaboratable, Module, Mux, Signal, Value

from afflux_hdl.contract import wire
from afflux_hdl.engine.lane_alu import LaneAlu

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
    """Any elements, any opcode, in every cycle."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.alu = alu = LaneAlu()
        started = Signal()
        expected, overflow = Signal(32), Signal()
        m.d.comb += [
            alu.opcode.eq(AnySeq(2)),
            alu.fresh.eq(AnySeq(1)),
            alu.held.eq(AnySeq(32)),
            alu.arriving.eq(AnySeq(32)),
        ]
        total = alu.held.as_signed() + alu.arriving.as_signed()
        outside = (total < -(1 << 31)) | (total >= 1 << 31)
        m.d.sync += [
            started.eq(1),
            expected.eq(Mux(alu.fresh, alu.arriving, merged(alu.opcode, alu.held, alu.arriving))),
            overflow.eq(~alu.fresh & (alu.opcode == wire.Opcode.SUM) & outside),
        ]
        with m.If(started):
            m.d.comb += [
                Assert(alu.merged == expected, "element"),
                Assert(alu.overflow == overflow, "overflow"),
                Cover(alu.overflow, "a sum overflows"),
            ]
        return m
