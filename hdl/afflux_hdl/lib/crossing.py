"""Crossing: a packet stream from one clock to another.

Tested: `tests/hdl/test_crossing.py`.
"""

from amaranth.hdl import Cat, Const, Module, ResetSignal, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from afflux_hdl.lib.clock_queue import ClockQueue
from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["Crossing"]


class Crossing(wiring.Component):
    """Carries beats from the domain `writer` to the domain `reader`, whatever their clocks.

    A queue of Gray counters, each synchronised by two registers (`ClockQueue`), and a register
    behind its memory. A beat is stored with the number of its bytes instead of `keep`: 36 bits for
    a bus of 32, the width of a block RAM.

    Latency: from the writer's edge that takes a beat until `o.valid` 3 to 4 edges of the reader.
    A place is free again 3 to 4 edges of the writer after its beat was taken. Throughput: one beat
    in each cycle of the slower clock, as long as 8 places or more make up for that. Overflow: `i`
    waits, or if `lossy` never does: then a word that finds no room is lost, but never silently. A
    frame of which a part has gone gets a last beat with `error` as soon as there is room; one that
    finds no room for its first beat, or whose beginning meets that end, disappears whole. Either
    counts.

    A reset of the writer empties the FIFO; a frame of which `o` has shown a part gets a last beat
    with `error`. It must last 4 cycles or more of the slower clock: behind a shorter one the writer
    still counts with the places that the reader had taken before. A reset of the reader alone loses
    at most the beat that `o` offers: let `frame_boundary.WholeFrames` follow. Meanwhile nothing is
    taken, so words that do not fit are lost as ever.

    Args:
        bus_bits: Width of the packet stream.
        depth: Beats in the memory, a power of two of at least 4.
        writer, reader: Clock domains.
        lossy: `i` is never stopped.

    Raises:
        ValueError: If the depth is not a power of two, or too small.

    Members:
        i: Beats in, in the domain `writer`.
        o: Beats out, in the domain `reader`.
        overflowed: In the domain `writer`, for a cycle: a frame is cut or dropped. 0 if not lossy.
    """

    def __init__(
        self, *, bus_bits: int, depth: int, writer: str, reader: str, lossy: bool = False
    ) -> None:
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 4, not {depth}")
        self._bytes = bus_bits // 8
        self._depth = depth
        self._writer, self._reader = writer, reader
        self._lossy = lossy
        beat = PacketBeat(bus_bits)
        self._stored = data.StructLayout(
            {"data": bus_bits, "bytes": ceil_log2(self._bytes), "last": 1, "error": 1}
        )
        super().__init__(
            {
                "i": In(stream.Signature(beat, always_ready=lossy)),
                "o": Out(stream.Signature(beat)),
                "overflowed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fifo = fifo = ClockQueue(
            width=Shape.cast(self._stored).width,
            depth=self._depth,
            writer=self._writer,
            reader=self._reader,
        )
        self._write(m, fifo)
        self._read(m, fifo)
        return m

    def _write(self, m: Module, fifo: ClockQueue) -> None:
        w, beat = m.d[self._writer], self.i.payload
        stored = Signal(self._stored)
        m.d.comb += [
            stored.data.eq(beat.data),
            # Bytes less one: the number of the highest bit of `keep` that is set.
            stored.bytes.eq(_highest(beat.keep)),
            stored.last.eq(beat.last),
            stored.error.eq(beat.error),
            fifo.w_data.eq(stored),
            fifo.w_en.eq(self.i.valid),
        ]
        if not self._lossy:
            m.d.comb += self.i.ready.eq(fifo.w_rdy)
            return
        # `inside`: a part of the frame has gone. `lost`: the rest of the frame does not go.
        # `owed`: a frame that was cut has no end yet.
        inside, lost, owed, passes = Signal(), Signal(), Signal(), Signal()
        m.d.comb += passes.eq(~lost & ~owed & fifo.w_rdy)
        with m.If(owed):
            m.d.comb += [fifo.w_en.eq(1), stored.last.eq(1), stored.error.eq(1)]
        with m.Elif(lost):
            m.d.comb += fifo.w_en.eq(0)
        with m.If(owed & fifo.w_rdy):
            w += owed.eq(0)
        with m.If(self.i.valid):
            m.d.comb += self.overflowed.eq(~passes & ~lost)
            w += [inside.eq(passes & ~beat.last), lost.eq(~passes & ~beat.last)]
            with m.If(self.overflowed & inside):
                w += owed.eq(1)

    def _read(self, m: Module, fifo: ClockQueue) -> None:
        r = m.d[self._reader]
        given = data.View(self._stored, fifo.r_data)
        # As FrameTracker does, `inside` follows the stream through a reset of the reader.
        inside, emptied = Signal(reset_less=True), Signal(reset_less=True)
        room, cut = Signal(), Signal()
        resetting = ResetSignal(self._reader, allow_reset_less=True)
        m.d.comb += [
            # Nothing is taken from memory under a reset: it would be gone, and nobody would know.
            room.eq((~self.o.valid | self.o.ready) & ~resetting),
            cut.eq((fifo.r_rst | emptied) & inside),
            fifo.r_en.eq(room & ~cut),
        ]
        r += emptied.eq(cut & ~room)
        with m.If(room):
            r += [
                self.o.valid.eq(fifo.r_rdy | cut),
                self.o.payload.data.eq(given.data),
                self.o.payload.last.eq(given.last | cut),
                self.o.payload.error.eq(given.error | cut),
            ]
            r += self.o.payload.keep[0].eq(1)
            for n in range(1, self._bytes):
                # All bytes, but in a last beat. The one that ends a cut frame has any number.
                r += self.o.payload.keep[n].eq(given.bytes >= n)
            with m.If(fifo.r_rdy | cut):
                r += inside.eq(~cut & ~given.last)


def _highest(keep: Value) -> Value:
    """Return the number of the highest bit that is set, where those below are set too."""
    bits = ceil_log2(len(keep))
    # The number is how many of the bits above the lowest are set; of those in a row it is enough to
    # look at some: bit b of the number is set where it is at least an odd multiple of 2**b and
    # below the next even one.
    return Cat(
        _any_between(keep, [(n, n + (1 << b)) for n in range(1 << b, len(keep), 2 << b)])
        for b in range(bits)
    )


def _any_between(keep: Value, ranges: list[tuple[int, int]]) -> Value:
    return Cat(
        keep[low] & (~keep[high] if high < len(keep) else Const(1, 1)) for low, high in ranges
    ).any()
