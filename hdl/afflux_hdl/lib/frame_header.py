"""Frame header: the first bytes of each frame, side by side.

Tested: `tests/hdl/test_node_parts.py`, by the parts that use it.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["FrameHeader"]


class FrameHeader(wiring.Component):
    """Collects the first bytes of each frame.

    Latency: one cycle from the beat that completes the header. Throughput: one beat in each cycle,
    also of frames that are a single beat each. No back-pressure, nothing to overflow.

    Args:
        bus_bits: Width of the packet stream.
        shape: Layout of the header, whole octets.

    Members:
        i: Frames.
        index: Number of the beat on `i` within its frame; it stays at `beats` behind the header.
        complete: In this cycle only: the header is complete, or the frame was too short for one.
        short: With `complete`: the frame has fewer bytes than the header.
        header: The header.

    Attributes:
        beats: Number of beats of a header.
    """

    def __init__(self, *, bus_bits: int, shape: data.Layout) -> None:
        self._bus_bits = bus_bits
        self._size = shape.size // 8
        self.beats = -(-shape.size // bus_bits)
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(bus_bits), always_ready=True)),
                "index": Out(range(self.beats + 1)),
                "complete": Out(1),
                "short": Out(1),
                "header": Out(shape),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, index = self.i.payload, self.index
        collected = Signal(self.beats * self._bus_bits)
        last_kept = (self._size - 1) % (self._bus_bits // 8)
        ends_header = Signal()
        m.d.comb += [
            ends_header.eq(index == self.beats - 1),
            self.header.eq(collected),
        ]
        m.d.sync += [
            self.complete.eq(self.i.valid & (ends_header | (beat.last & (index < self.beats - 1)))),
            self.short.eq(~ends_header | (beat.last & ~beat.keep[last_kept])),
        ]
        with m.If(self.i.valid):
            m.d.sync += index.eq(Mux(beat.last, 0, Mux(index == self.beats, index, index + 1)))
            with m.If(index < self.beats):
                m.d.sync += collected.eq(Cat(collected, beat.data)[self._bus_bits :])
        return m
