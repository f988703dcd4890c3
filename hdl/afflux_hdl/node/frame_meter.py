"""Frame meter: counts frames and bytes of a stream as they pass.

Tested: `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["FrameMeter"]


class FrameMeter(wiring.Component):
    """Measures each beat.

    Latency: 2 cycles. Throughput: one beat in each cycle.

    Args:
        bus_bits: Width of the packet stream.

    Members:
        payload, taken: This beat passes in this cycle.
        frames: A frame has ended.
        bytes: Bytes of the beat that has passed; 0 without one.
    """

    def __init__(self, *, bus_bits: int) -> None:
        self._size = bus_bits // 8
        super().__init__(
            {
                "payload": In(PacketBeat(bus_bits)),
                "taken": In(1),
                "frames": Out(1),
                "bytes": Out(bits_for(self._size)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        keep, ended = Signal(self._size + 1), Signal()
        m.d.sync += [keep.eq(0), ended.eq(0), self.frames.eq(ended)]
        with m.If(self.taken):
            m.d.sync += [keep.eq(self.payload.keep), ended.eq(self.payload.last)]
        # Bytes are contiguous, so the position of the first missing one is their number. This is a
        # signal because each use of a bare Cat would write all of it out again.
        ends = Signal(self._size)
        m.d.comb += ends.eq(Cat(keep[n] & ~keep[n + 1] for n in range(self._size)))
        for bit in range(len(self.bytes)):
            m.d.sync += self.bytes[bit].eq(
                Cat(ends[n] for n in range(self._size) if (n + 1) >> bit & 1).any()
            )
        return m
