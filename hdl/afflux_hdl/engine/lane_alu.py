"""Lane ALU: merges one element of a block with the element that the slot holds.

Proved: `tests/formal/lane_alu.py`. Tested: `tests/hdl/test_lane_alu.py`,
`tests/sim/test_engine_numbers.py`.
"""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire

__all__ = ["LaneAlu"]


class LaneAlu(wiring.Component):
    """Merges two 32-bit elements.

    Latency: 1 cycle. Throughput: one element in each cycle. No back-pressure. SUM wraps modulo
    2**32; `overflow` reports that the true sum is not an int32.

    Members:
        opcode: One of `wire.Opcode`.
        fresh: The slot holds nothing yet: take `arriving` as it is.
        held, arriving: Elements.
        merged: The merged element, one cycle later.
        overflow: A SUM left the range of int32, one cycle later.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "opcode": In(2),
                "fresh": In(1),
                "held": In(32),
                "arriving": In(32),
                "merged": Out(32),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held, arriving = self.held.as_signed(), self.arriving.as_signed()
        total = Signal(signed(33))
        signed_less, unsigned_less, keep_held = Signal(), Signal(), Signal()
        differs = Signal()
        m.d.comb += [
            total.eq(held + arriving),
            unsigned_less.eq(self.held < self.arriving),
            # One comparison serves both orders: unlike signs reverse the unsigned one.
            differs.eq(self.held[31] ^ self.arriving[31]),
            signed_less.eq(unsigned_less ^ differs),
        ]
        with m.Switch(self.opcode):
            with m.Case(wire.Opcode.MAX):
                m.d.comb += keep_held.eq(~signed_less)
            with m.Case(wire.Opcode.MIN):
                m.d.comb += keep_held.eq(signed_less)
            with m.Default():
                m.d.comb += keep_held.eq(unsigned_less)
        adds = Signal()
        m.d.comb += adds.eq(self.opcode == wire.Opcode.SUM)
        with m.If(self.fresh):
            m.d.sync += self.merged.eq(self.arriving)
        with m.Elif(adds):
            m.d.sync += self.merged.eq(total[:32])
        with m.Else():
            m.d.sync += self.merged.eq(Mux(keep_held, self.held, self.arriving))
        m.d.sync += self.overflow.eq(~self.fresh & adds & (total[32] ^ total[31]))
        return m
