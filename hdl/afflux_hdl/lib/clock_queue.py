"""Queue between two clocks: the memory and the Gray counters of `Crossing`.

Tested: `tests/hdl/test_crossing.py`.
"""

from amaranth.hdl import Module, ResetSignal, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.cdc import AsyncFFSynchronizer, FFSynchronizer
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ClockQueue"]

LUT_DEPTH = 16
"""Places up to which a memory is of LUTs on any part, and can be read within a cycle."""


class ClockQueue(wiring.Component):
    """Carries words from the domain `writer` to the domain `reader`, in place of AsyncFIFO.

    That one of Amaranth computes the next address from the comparison of the counters, and reads
    the memory with it in the same cycle. Here the comparison only enables registers: a memory of
    LUTs is read at the counter itself, and additions to a counter do not go by the comparison. A
    deeper memory is of block RAM, which has a register for its output, and is read at the next
    address.

    A reset of the writer empties the queue, whatever the reader's clock does; one of the reader
    leaves it alone. It follows Amaranth's: the reader's counters take the writer's meanwhile, so
    that no Gray count changes in more than a bit while it is looked at.

    Latency: from the writer's edge that takes a word until `r_rdy` 2 to 3 edges of the reader.
    Throughput: a word in each cycle of the slower clock, from 8 places on. Overflow: `w_rdy`.

    Args:
        width: Bits of a word.
        depth: Words, a power of two of at least 4.
        writer, reader: Clock domains.

    Members:
        w_data, w_en, w_rdy: Words in, taken when `w_en` and `w_rdy`.
        r_data, r_rdy, r_en: Words out, gone when `r_rdy` and `r_en`.
        r_rst: In the domain `reader`: a reset of the writer empties the queue.
    """

    def __init__(self, *, width: int, depth: int, writer: str, reader: str) -> None:
        self._width, self._depth = width, depth
        self._writer, self._reader = writer, reader
        super().__init__(
            {
                "w_data": In(width),
                "w_en": In(1),
                "w_rdy": Out(1),
                "r_data": Out(width),
                "r_rdy": Out(1),
                "r_en": In(1),
                "r_rst": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        w, r = m.d[self._writer], m.d[self._reader]
        bits = ceil_log2(self._depth) + 1
        produced, produced_gray, produced_there = (
            Signal(bits, name=name) for name in ("produced", "produced_gray", "produced_there")
        )
        # A reset of the reader leaves its counters alone; see above for one of the writer.
        consumed = Signal(bits, reset_less=True)
        consumed_gray = Signal(bits, reset_less=True)
        consumed_there = Signal(bits)
        m.submodules.produce_cdc = FFSynchronizer(
            produced_gray, produced_there, o_domain=self._reader
        )
        m.submodules.consume_cdc = FFSynchronizer(
            consumed_gray, consumed_there, o_domain=self._writer
        )
        under_reset = Signal()
        m.submodules.rst_cdc = AsyncFFSynchronizer(
            ResetSignal(self._writer, allow_reset_less=True), under_reset, o_domain=self._reader
        )
        m.submodules.storage = storage = memory.Memory(
            shape=self._width, depth=self._depth, init=[]
        )

        # Written.
        write = storage.write_port(domain=self._writer)
        produced_next = (produced + 1)[:bits]
        full = (produced_gray ^ consumed_there) == 0b11 << bits - 2
        m.d.comb += [
            self.w_rdy.eq(~full),
            write.en.eq(self.w_en & ~full),
            write.addr.eq(produced),
            write.data.eq(self.w_data),
        ]
        with m.If(write.en):
            w += [produced.eq(produced_next), produced_gray.eq(_gray(produced_next))]

        # Read.
        consumed_next = (consumed + 1)[:bits]
        taken = Signal()
        m.d.comb += [
            self.r_rdy.eq((consumed_gray != produced_there) & ~under_reset),
            taken.eq(self.r_rdy & self.r_en),
        ]
        r += self.r_rst.eq(under_reset)
        with m.If(under_reset):
            r += [consumed_gray.eq(produced_there), consumed.eq(_binary(produced_there))]
        with m.Elif(taken):
            r += [consumed_gray.eq(_gray(consumed_next)), consumed.eq(consumed_next)]
        if self._depth <= LUT_DEPTH:
            read = storage.read_port(domain="comb")
            m.d.comb += read.addr.eq(consumed)
        else:
            read = storage.read_port(domain=self._reader)
            m.d.comb += read.addr.eq(consumed + taken)
        m.d.comb += self.r_data.eq(read.data)
        return m


def _gray(count: Value) -> Value:
    return count ^ count[1:]


def _binary(gray: Value) -> Value:
    count = gray
    for shift in range(1, len(gray)):
        count = count ^ gray[shift:]
    return count
