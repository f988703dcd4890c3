"""Egress: merges the streams of frames that leave for the network.

Proved: `tests/formal/node_streams.py`. Tested: `tests/hdl/test_node_parts.py`,
`tests/hdl/test_node_latency.py`, `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["Egress"]


class Egress(wiring.Component):
    """Sends the frames of several sources, frame by frame, in turn.

    When a frame ends, the next one is of the nearest source after its own, round robin, that has a
    frame. So a source with a frame waits for at most one frame of each of the others.

    Latency: 1 cycle. Throughput: one beat in each cycle while `o.ready` holds and any source has
    one, between frames too. A source that pauses within a frame makes the others wait, so sources
    hold whole frames or never pause within one.

    Args:
        bus_bits: Width of the packet streams.
        sources: Number of sources.

    Members:
        i: Frames of each source.
        o: Frames for the MAC.
        idle: No beat is here.
    """

    def __init__(self, *, bus_bits: int, sources: int) -> None:
        self._sources = sources
        beat = PacketBeat(bus_bits)
        super().__init__(
            {
                "i": In(stream.Signature(beat)).array(sources),
                "o": Out(stream.Signature(beat)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sources = range(self._sources)
        latest, chosen, selected = (
            Signal(sources, name=name) for name in ("latest", "chosen", "selected")
        )
        in_frame, room = Signal(), Signal()
        with m.Switch(latest):
            for n in sources:
                with m.Case(n):
                    # The last assignment that applies counts: the nearest one after n.
                    for distance in reversed(range(1, self._sources + 1)):
                        candidate = (n + distance) % self._sources
                        with m.If(self.i[candidate].valid):
                            m.d.comb += chosen.eq(candidate)
        m.d.comb += [
            selected.eq(Mux(in_frame, latest, chosen)),
            room.eq(~self.o.valid | self.o.ready),
            self.idle.eq(~self.o.valid & ~in_frame & ~Cat(i.valid for i in self.i).any()),
        ]
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
        return m
