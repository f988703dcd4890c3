"""Whole-frame crossing: frames from one clock to another, for a MAC that cannot wait in a frame.

Tested: `tests/hdl/test_whole_frame_crossing.py`.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from afflux_hdl.lib.count_crossing import CountCrossing
from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["WholeFrameCrossing"]


class WholeFrameCrossing(wiring.Component):
    """Carries frames from the domain `writer` to the domain `reader`, and offers only whole ones.

    A frame comes out when all of it is in, and then without a pause, whatever the two clocks are.
    A frame that would fill the memory before its end has come would wait for ever, so it is cut:
    its last place takes a beat with `last` and `error`, and the rest of it is dropped.

    Only two counts cross: of whole frames forwards, and of places that are free again backwards.
    A beat is read three cycles or more after the count has changed that tells of it.

    A reset of either domain alone has no effect: everything here is left alone by resets. The parts
    that a reset does cut frames in end them (`frame_boundary.CutByReset`).

    Latency: 4 to 5 edges of the reader from the writer's edge that takes a frame's last beat until
    `o.valid`, if no frame is in the way. Throughput: one beat in each cycle of the slower clock;
    at the reader without a gap between frames that are in. Overflow: `i` waits.

    Args:
        bus_bits: Width of the packet stream.
        depth: Beats in the memory, a power of two of at least 8.
        writer, reader: Clock domains.

    Raises:
        ValueError: If the depth is not a power of two, or too small.

    Members:
        i: Frames in, in the domain `writer`.
        o: Frames out, in the domain `reader`. `valid` stays from a frame's first beat to its last.
        cut: In the domain `writer`: a frame that is too long is cut in this cycle.
    """

    def __init__(self, *, bus_bits: int, depth: int, writer: str, reader: str) -> None:
        if depth < 8 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 8, not {depth}")
        self._beat = beat = PacketBeat(bus_bits)
        self._depth = depth
        self._writer, self._reader = writer, reader
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(beat)),
                "cut": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = ceil_log2(self._depth) + 1
        m.submodules.content = content = memory.Memory(
            shape=self._beat.size, depth=self._depth, init=[]
        )
        m.submodules.frames = frames = CountCrossing(
            bits=bits, i_domain=self._writer, o_domain=self._reader
        )
        m.submodules.freed = freed = CountCrossing(
            bits=bits, i_domain=self._reader, o_domain=self._writer
        )
        self._write(m, content.write_port(domain=self._writer), frames, freed.count)
        self._read(m, content.read_port(domain=self._reader), freed, frames.count)
        return m

    def _write(self, m: Module, port: Value, frames: CountCrossing, freed: Value) -> None:
        w, last = m.d[self._writer], self.i.payload.last
        written = Signal(len(freed), reset_less=True)
        beats = Signal(range(self._depth), reset_less=True)
        dropping = Signal(reset_less=True)
        full, stored, beat = Signal(), Signal(), Signal(self._beat)
        m.d.comb += [
            full.eq((written - freed)[: len(freed)] == self._depth),
            stored.eq(self.i.valid & ~full & ~dropping),
            self.i.ready.eq(~full | dropping),
            self.cut.eq(stored & (beats == self._depth - 1) & ~last),
            beat.eq(self.i.payload),
            port.en.eq(stored),
            port.addr.eq(written),
            port.data.eq(beat),
            frames.advance.eq(stored & beat.last),
        ]
        with m.If(self.cut):
            m.d.comb += [beat.last.eq(1), beat.error.eq(1)]
        with m.If(stored):
            w += [written.eq(written + 1), beats.eq(Mux(beat.last, 0, beats + 1))]
        with m.If(self.i.valid & self.i.ready):
            w += dropping.eq((dropping | self.cut) & ~last)

    def _read(self, m: Module, port: Value, freed: CountCrossing, frames: Value) -> None:
        r = m.d[self._reader]
        # Beside each number is the next one: no adder is in the way of `ready`.
        head, ended = (
            Signal(len(frames), name=name, reset_less=True) for name in ("head", "ended")
        )
        head_next, ended_next = (
            Signal(len(frames), name=f"{name}_next", init=1, reset_less=True)
            for name in ("head", "ended")
        )
        taken, valid = Signal(), Signal(reset_less=True)
        m.d.comb += [
            taken.eq(valid & self.o.ready),
            freed.advance.eq(taken),
            # The memory always reads the beat that will be at the head in the next cycle.
            port.addr.eq(Mux(taken, head_next, head)),
            Value.cast(self.o.payload).eq(port.data),
            self.o.valid.eq(valid),
        ]
        with m.If(taken):
            r += [head.eq(head_next), head_next.eq(head_next + 1)]
        with m.If(taken & self.o.payload.last):
            r += [
                ended.eq(ended_next),
                ended_next.eq(ended_next + 1),
                valid.eq(ended_next != frames),
            ]
        with m.Elif(ended != frames):
            r += valid.eq(1)
