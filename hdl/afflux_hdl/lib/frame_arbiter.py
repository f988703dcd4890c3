"""Frame arbiter: several streams of frames become one, frame by frame, in turn.

Tested: `tests/hdl/test_box_parts.py`.
"""

from amaranth.hdl import Array, Module, Mux, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FrameArbiter"]


class FrameArbiter(wiring.Component):
    """Passes frames of several sources on, whole, in turn.

    A frame waits for at most one frame of each other source. A source that pauses within a frame
    makes the others wait.

    Latency: none. Throughput: one beat in each cycle, between frames too.

    Args:
        shape: Shape of a beat, with a member `last`.
        sources: Number of sources.

    Members:
        i: Frames of each source.
        o: Frames of all.
        chosen: With `o`: the source.
    """

    def __init__(self, shape: ShapeLike, *, sources: int) -> None:
        self._sources = sources
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(sources),
                "o": Out(stream.Signature(shape)),
                "chosen": Out(range(sources)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Once a beat is offered, its source may not change until the frame has ended.
        latest, next_one, busy = Signal(range(self._sources)), Signal.like(self.chosen), Signal()
        with m.Switch(latest):
            for n in range(self._sources):
                with m.Case(n):
                    # The last assignment that applies counts: the nearest one after n.
                    for distance in reversed(range(1, self._sources + 1)):
                        candidate = (n + distance) % self._sources
                        with m.If(self.i[candidate].valid):
                            m.d.comb += next_one.eq(candidate)
        m.d.comb += [
            self.chosen.eq(Mux(busy, latest, next_one)),
            self.o.valid.eq(Array(i.valid for i in self.i)[self.chosen]),
        ]
        with m.Switch(self.chosen):
            for n, i in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [self.o.payload.eq(i.payload), i.ready.eq(self.o.ready)]
        with m.If(self.o.valid):
            m.d.sync += [latest.eq(self.chosen), busy.eq(1)]
            with m.If(self.o.ready & self.o.payload.last):
                m.d.sync += busy.eq(0)
        return m
