"""Frame boundaries: where frames begin and end on a stream, resets or not.

A reset comes at any time, and the other end of a stream need not take part in it. The beats after
it on an input may be the tail of a frame, and the beats before it may be the beginning of one. A
stream itself does not show which; so these parts have registers that a reset leaves alone. When the
FPGA is configured, they start between frames.

Tested: `tests/hdl/test_frame_boundary.py`, `tests/sim/test_engine_link.py`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["CutByReset", "FrameTracker", "WholeFrames"]


class FrameTracker(wiring.Component):
    """Follows a stream's frames through resets.

    Members:
        taken: A beat is taken in this cycle.
        last: It is its frame's last.
        inside: The beat before this cycle was not a last one. A reset leaves this alone.
    """

    def __init__(self) -> None:
        super().__init__({"taken": In(1), "last": In(1), "inside": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside = Signal(reset_less=True)
        with m.If(self.taken):
            m.d.sync += inside.eq(~self.last)
        m.d.comb += self.inside.eq(inside)
        return m


class CutByReset(wiring.Component):
    """Finds that a reset has cut off the frame that was leaving.

    Members:
        taken, last: As of the outermost stream, behind all that a reset empties.
        cut: In the first cycle after a reset: the other end has the beginning of a frame. It must
            get its end, marked with an error.
    """

    def __init__(self) -> None:
        super().__init__({"taken": In(1), "last": In(1), "cut": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tracker = tracker = FrameTracker()
        first_cycle = Signal(init=1)
        m.d.sync += first_cycle.eq(0)
        m.d.comb += [
            tracker.taken.eq(self.taken),
            tracker.last.eq(self.last),
            self.cut.eq(first_cycle & tracker.inside),
        ]
        return m


class WholeFrames(wiring.Component):
    """Lets frames in from their first beat on.

    If a reset ends while a frame passes, its tail is not taken for a frame: of it, only the last
    beat goes on, with `error`. So it is dropped and counted as a frame that the MAC marked as bad.
    A frame whose first beat comes after the reset is let in, be it the very first beat.

    A last beat without bytes, which AXI4-Stream allows and frames do not need, is given `error`
    too: parts behind this one rely on a byte in each beat.

    Latency: none. Throughput: a beat in each cycle.

    Args:
        bus_bits: Width of the packet stream.
        ports: Network ports behind it.

    Members:
        i: Beats from outside; those that are taken during the reset count.
        o: Whole frames, and tails as one beat.
    """

    def __init__(self, *, bus_bits: int, ports: int = 1) -> None:
        beat = PacketBeat(bus_bits, ports)
        super().__init__({"i": In(stream.Signature(beat)), "o": Out(stream.Signature(beat))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tracker = tracker = FrameTracker()
        since_reset, tail = Signal(init=1), Signal()
        beat = self.i.payload
        taken = self.i.valid & self.i.ready
        m.d.comb += [
            tracker.taken.eq(taken),
            tracker.last.eq(beat.last),
            tail.eq(since_reset & tracker.inside),
            self.o.payload.eq(beat),
            self.o.payload.error.eq(beat.error | tail | (beat.last & ~beat.keep[0])),
            self.o.valid.eq(self.i.valid & (~tail | beat.last)),
            self.i.ready.eq(self.o.ready | (tail & ~beat.last)),
        ]
        with m.If(~tracker.inside | (taken & beat.last)):
            m.d.sync += since_reset.eq(0)
        return m
