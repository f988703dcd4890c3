"""Arrivals: what has come by one of several network ports waits here for its turn.

Tested: `tests/hdl/test_boards_arrivals.py`, `tests/sim/test_board_ports.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["Arrivals"]

BUS_BITS = 32

MARK = 0b101
"""The change to `keep`, without its first bit, in the last beat of a bad frame.

In a frame it is 0b000, 0b001, 0b011 or 0b111. Changed, it is one of the other four, so a bad frame
is known without a bit of its own: with one, a beat would have 37 bits, and block RAM has 36.
"""


class Arrivals(wiring.Component):
    """Keeps frames until they are whole, so that none makes the other port's wait while it comes.

    Bad frames are kept too: whose they are is for the node to find out, and to count. A frame that
    does not fit is dropped whole.

    Latency: 2 cycles from a frame's last beat to its first beat on `o`. Throughput: one beat in
    each cycle in, one out. Overflow: see `dropped`.

    Args:
        depth_bytes: Size, a power of two.

    Members:
        i: Frames as they come; `error`, with `last`, marks a bad one.
        o: Whole frames, bad ones marked likewise.
        dropped: A frame that does not fit has ended in this cycle.
    """

    def __init__(self, *, depth_bytes: int) -> None:
        self._depth_bytes = depth_bytes
        beat = PacketBeat(BUS_BITS)
        super().__init__(
            {
                "i": In(stream.Signature(beat, always_ready=True)),
                "o": Out(stream.Signature(beat)),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.frames = frames = PacketFifo(
            bus_bits=BUS_BITS, depth_bytes=self._depth_bytes, lossy=True
        )
        m.d.comb += [
            frames.i.valid.eq(self.i.valid),
            frames.i.payload.eq(self.i.payload),
            frames.i.payload.error.eq(0),
            self.o.valid.eq(frames.o.valid),
            self.o.payload.eq(frames.o.payload),
            frames.o.ready.eq(self.o.ready),
            self.dropped.eq(frames.overflowed),
        ]
        with m.If(self.i.payload.last & self.i.payload.error):
            m.d.comb += frames.i.payload.keep.eq(_marked(self.i.payload.keep))
        came, marked = frames.o.payload, Signal()
        # Only in a last beat can it be so.
        m.d.comb += marked.eq(Mux(came.keep[2], ~came.keep[1], came.keep[3]))
        with m.If(marked):
            m.d.comb += [self.o.payload.keep.eq(_marked(came.keep)), self.o.payload.error.eq(1)]
        return m


def _marked(keep: Value) -> Value:
    return Cat(Const(1, 1), keep[1:] ^ MARK)
