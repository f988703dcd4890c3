"""Frame size: counts the bytes of each frame of a stream as it passes.

Tested: `tests/hdl/test_box_parts.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.node.frame_meter import FrameMeter

__all__ = ["SIZE_CYCLES", "FrameSize"]

SIZE_CYCLES = 3
"""Cycles from a frame's last beat to its size."""


class FrameSize(wiring.Component):
    """Measures each frame.

    Latency: `SIZE_CYCLES` from the frame's last beat. Throughput: one beat in each cycle, also of
    frames of one beat each. Sizes from 65,536 bytes on wrap.

    Args:
        bus_bits: Width of the packet stream.

    Members:
        payload, taken: This beat passes in this cycle.
        done: A frame has ended.
        size: Its bytes.
    """

    def __init__(self, *, bus_bits: int) -> None:
        self._bus_bits = bus_bits
        super().__init__(
            {"payload": In(PacketBeat(bus_bits)), "taken": In(1), "done": Out(1), "size": Out(16)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.meter = meter = FrameMeter(bus_bits=self._bus_bits)
        total, before = Signal(16), Signal(16)
        m.d.comb += [
            meter.payload.eq(self.payload),
            meter.taken.eq(self.taken),
            total.eq(before + meter.bytes),
        ]
        m.d.sync += [
            before.eq(Mux(meter.frames, 0, total)),
            self.done.eq(meter.frames),
            self.size.eq(total),
        ]
        return m
