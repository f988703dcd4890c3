"""Outlet: hands whole frames to the shell, with their size from the first beat on.

Tested: `tests/hdl/test_box_parts.py`, `tests/sim/test_box.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.frame_boundary import CutByReset
from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.lib.queue import Queue
from afflux_hdl.lib.skid_buffer import SkidBuffer
from afflux_hdl.opennic.frame_size import SIZE_CYCLES, FrameSize
from afflux_hdl.opennic.streams import BUS_BITS, BoxBeat

__all__ = ["Outlet"]


class Outlet(wiring.Component):
    """Keeps frames until they are whole, then hands them to an adapter or to a queue of the host.

    The shell has no way to mark a frame as bad: what it is given leaves, with a right check
    sequence. So a frame that is cut off in the node, by a reset or a link that goes down, may not
    reach it, and a frame's size must be known at its first beat. Both take a buffer of whole
    frames.

    This part is not reset with the node, only with the shell. If that happens amid a frame, the
    frame is ended by a beat without destination: an adapter that has been reset too drops it, one
    that has not has its frame's end.

    Whether the buffer is full decides in a cycle of its own, as the logic before `i` is deep; and
    an adapter may decide late in its cycle.

    Latency: 5 cycles from a frame's last beat to its first beat on `o`. Throughput: one beat in
    each cycle. Overflow: `i` waits, unless `blocked` holds; a frame larger than the buffer is
    dropped whole.

    Args:
        depth_bytes: Size of the buffer, a power of two.
        src, dst: The fields of all frames that leave here.

    Members:
        i: Frames; one with `error` is dropped.
        o: Frames for the shell.
        blocked: Nobody takes frames: do not make `i` wait, drop what does not fit.
        sent, refused, dropped: A frame has left in this cycle, had `error` set, or did not fit.
    """

    def __init__(self, *, depth_bytes: int, src: int, dst: int) -> None:
        self._depth_bytes = depth_bytes
        self._src, self._dst = src, dst
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(BUS_BITS))),
                "o": Out(stream.Signature(BoxBeat)),
                "blocked": In(1),
                "sent": Out(1),
                "refused": Out(1),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.skid = skid = SkidBuffer(PacketBeat(BUS_BITS))
        m.submodules.frames = frames = PacketFifo(
            bus_bits=BUS_BITS, depth_bytes=self._depth_bytes, lossy=False, late_ready=True
        )
        wiring.connect(m, wiring.flipped(self.i), skid.i)
        wiring.connect(m, skid.o, frames.i)

        # The sizes of the frames that the buffer has kept: no more than it has beats.
        m.submodules.counted = counted = FrameSize(bus_bits=BUS_BITS)
        m.submodules.sizes = sizes = Queue(
            16, depth=self._depth_bytes // (BUS_BITS // 8), always_ready=True
        )
        kept = Signal(SIZE_CYCLES)
        m.d.sync += kept.eq(Cat(frames.committed, kept))
        m.d.comb += [
            counted.payload.eq(frames.i.payload),
            counted.taken.eq(frames.i.valid & frames.i.ready),
            sizes.i.payload.eq(counted.size),
            sizes.i.valid.eq(kept[-1]),
        ]

        m.submodules.cut = cut = CutByReset()
        beat = frames.o.payload
        leaves = Signal()
        m.d.comb += [
            frames.blocked.eq(self.blocked),
            frames.cut.eq(cut.cut),
            self.o.valid.eq(frames.o.valid & (sizes.o.valid | beat.error)),
            self.o.payload.data.eq(beat.data),
            self.o.payload.keep.eq(Mux(beat.error, -1, beat.keep)),
            self.o.payload.last.eq(beat.last),
            self.o.payload.size.eq(Mux(beat.error, BUS_BITS // 8, sizes.o.payload)),
            self.o.payload.src.eq(self._src),
            self.o.payload.dst.eq(Mux(beat.error, 0, self._dst)),
            leaves.eq(self.o.valid & self.o.ready),
            frames.o.ready.eq(self.o.ready & (sizes.o.valid | beat.error)),
            sizes.o.ready.eq(leaves & beat.last & ~beat.error),
            cut.taken.eq(leaves),
            cut.last.eq(beat.last),
            self.sent.eq(leaves & beat.last & ~beat.error),
            self.refused.eq(frames.refused),
            self.dropped.eq(frames.overflowed),
        ]
        return m
