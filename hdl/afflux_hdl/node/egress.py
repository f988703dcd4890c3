"""Egress: merges the streams of frames that leave for the network.

Proved: `tests/formal/node_streams.py`. Tested: `tests/hdl/test_node_parts.py`,
`tests/hdl/test_node_latency.py`, `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["SHARE", "Egress"]

SHARE = 7
"""Beats of the first source for each beat of another: at least 7 of 8 beats are its own."""


class Egress(wiring.Component):
    """Sends the frames of several sources, frame by frame; the first source has most of the link.

    The others take turns. A frame of b beats of another source is followed by `SHARE`·b beats of
    the first one, or more, as long as that one has frames: so whatever the others send, a first
    source that always has a frame gets at least `SHARE` of `SHARE` + 1 beats, and its frame waits
    for at most one frame of the others. These are not starved: each waits for at most one frame of
    each other one, and before each of these for at most `SHARE` times the beats of the frame before
    it, and one frame more, of the first source.

    Latency: 1 cycle. Throughput: one beat in each cycle while `o.ready` holds and any source has
    one, between frames too. A source that pauses within a frame makes the others wait, so sources
    hold whole frames or never pause within one.

    Args:
        bus_bits: Width of the packet streams.
        sources: Number of sources.
        frame_beats_max: Beats of the largest frame of a source other than the first.
        ports: Network ports behind the streams.

    Members:
        i: Frames of each source. `error`, with `last`, passes.
        o: Frames for the MAC.
        cut: In the first cycle after a reset: the reset has cut a frame off on `o`. A beat with
            `last` and `error` ends it.
        idle: No beat is here.
    """

    def __init__(
        self, *, bus_bits: int, sources: int, frame_beats_max: int, ports: int = 1
    ) -> None:
        self._sources = sources
        self._owed_max = SHARE * frame_beats_max
        beat = PacketBeat(bus_bits, ports)
        super().__init__(
            {
                "i": In(stream.Signature(beat)).array(sources),
                "o": Out(stream.Signature(beat)),
                "cut": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sources = range(self._sources)
        latest, chosen, selected = (
            Signal(sources, name=name) for name in ("latest", "chosen", "selected")
        )
        in_frame, room, first_goes = Signal(), Signal(), Signal()
        # Of the others, the one whose frame was the latest.
        latest_other = Signal(range(1, self._sources), init=self._sources - 1)
        # Beats that the first source may send before the next frame of another one.
        owed, owes = Signal(range(self._owed_max + 1)), Signal()
        others = range(1, self._sources)
        with m.Switch(latest_other):
            for n in others:
                with m.Case(n):
                    # The last assignment that applies counts: the nearest one after n.
                    for distance in reversed(range(1, self._sources)):
                        candidate = 1 + (n - 1 + distance) % (self._sources - 1)
                        with m.If(self.i[candidate].valid):
                            m.d.comb += chosen.eq(candidate)
        m.d.comb += [
            first_goes.eq(self.i[0].valid & (owes | ~Cat(self.i[n].valid for n in others).any())),
            selected.eq(Mux(in_frame, latest, Mux(first_goes, 0, chosen))),
            room.eq((~self.o.valid | self.o.ready) & ~self.cut),
            self.idle.eq(~self.o.valid & ~in_frame & ~Cat(i.valid for i in self.i).any()),
        ]
        next_owed = Signal.like(owed)
        m.d.comb += next_owed.eq(owed)
        m.d.sync += [owed.eq(next_owed), owes.eq(next_owed != 0)]
        with m.If(room):
            m.d.sync += self.o.valid.eq(0)
        with m.Switch(selected):
            for n in sources:
                with m.Case(n):
                    source = self.i[n]
                    m.d.comb += source.ready.eq(room)
                    with m.If(room & source.valid):
                        m.d.sync += [
                            self.o.valid.eq(1),
                            self.o.payload.eq(source.payload),
                            in_frame.eq(~source.payload.last),
                            latest.eq(n),
                        ]
                        if n == 0:
                            m.d.comb += next_owed.eq(Mux(owes, owed - 1, 0))
                        else:
                            # A frame that comes while the first source has none, too, owes for
                            # itself only.
                            m.d.comb += next_owed.eq(Mux(in_frame, owed, 0) + SHARE)
                            m.d.sync += latest_other.eq(n)
        with m.If(self.cut):
            m.d.sync += [
                self.o.valid.eq(1),
                self.o.payload.keep.eq(1),
                self.o.payload.last.eq(1),
                self.o.payload.error.eq(1),
            ]
        # For proofs.
        self.owed, self.owes, self.latest, self.latest_other = owed, owes, latest, latest_other
        self.in_frame = in_frame
        return m
