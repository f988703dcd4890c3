"""Stands in for the management in tests of what is around it: sends frames back, and sets nothing.

It has the members that `afflux_hdl.boards.appliance.Appliance` needs, and no others.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.node.node import AXI_LITE

__all__ = ["StandInManagement"]


class StandInManagement(wiring.Component):
    """Returns each frame as it came, and counts those that came up to 2."""

    def __init__(self) -> None:
        beat = PacketBeat(32)
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(beat)),
                "axil": Out(AXI_LITE),
                "entropy": In(1),
                "configured": Out(1),
                "fault": Out(1),
                "authenticated": Out(1),
                "reset": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        connect(m, flipped(self.i), flipped(self.o))
        ones, seen = Signal(), Signal(2)
        m.d.sync += ones.eq(self.entropy)
        with m.If(self.i.valid & self.i.ready & self.i.payload.last & (seen != 2)):
            m.d.sync += seen.eq(seen + 1)
        m.d.comb += [self.configured.eq(seen == 2), self.authenticated.eq(ones & ~self.entropy)]
        return m
