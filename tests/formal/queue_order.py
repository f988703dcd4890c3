"""Proof: a queue keeps the order of its payloads, loses none that it takes and adds none.

`Queue` as it is, with anything at its ports at any time. Any one payload is chosen as it enters and
followed: it is written at some address of the memory, which is the watched one, and it comes out,
unchanged, behind exactly the payloads that entered before it. All others are like it: so the output
is the input, one by one.

A payload is a vector of bits that the queue never looks at: its width does not matter.
"""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Const, Cover, Elaboratable, Module, Mux, Signal, Value

from afflux_hdl.lib.queue import Queue
from tests.formal import seams
from tests.formal.inside import Inside
from tests.formal.watched import watching

__all__ = ["QueueOrderHarness"]

WIDTH = 8


class QueueOrderHarness(Elaboratable):
    """See above.

    Args:
        depth, buffered: Of the queue.
    """

    def __init__(self, *, depth: int, buffered: bool) -> None:
        self._depth = depth
        self._buffered = buffered

    def elaborate(self, platform: object) -> Module:
        m = Module()
        queue = Queue(WIDTH, depth=self._depth, buffered=self._buffered, always_ready=True)
        with watching("amaranth.lib.fifo") as rams:
            inside = Inside(queue, platform)
            m.submodules.queue = inside.fragment
        (ram,) = rams
        m.d.comb += [
            ram.watched.eq(AnyConst(len(ram.watched))),
            queue.i.payload.eq(AnySeq(WIDTH)),
            queue.i.valid.eq(AnySeq(1)),
            queue.o.ready.eq(AnySeq(1)),
        ]
        fifo = inside["fifo"]
        # In the memory; the buffered queue has one more in a register behind it.
        stored = inside["fifo.inner_level"] if self._buffered else fifo.level
        size = self._depth - 1 if self._buffered else self._depth
        produce, consume = inside["fifo.produce"], inside["fifo.consume"]
        enters = queue.i.valid & fifo.w_rdy
        leaves = queue.o.valid & queue.o.ready

        # The chosen payload, and how many are before it.
        chosen, gone = Signal(), Signal()
        ahead = Signal(range(self._depth + 1))
        content = Signal(WIDTH)
        chooses = Signal()
        m.d.comb += chooses.eq(AnySeq(1) & enters & ~chosen & (produce == ram.watched))
        with m.If(leaves):
            with m.If(chosen & (ahead == 0)):
                m.d.sync += gone.eq(1)
            with m.Else():
                m.d.sync += ahead.eq(ahead - 1)
        with m.If(chooses):
            m.d.sync += [
                chosen.eq(1),
                content.eq(queue.i.payload),
                ahead.eq(queue.level - leaves),
            ]
        waits = chosen & ~gone
        seams.QUEUE.guarantee(
            m, queue, enters, waits, ahead, content, depth=self._depth, buffered=self._buffered
        )

        # Where it is, for the induction.
        distance: Value = ram.watched - consume
        place = Signal(range(self._depth + 1))
        m.d.comb += [
            place.eq(Mux(ram.watched >= consume, distance, distance + size)),
            Assert(stored <= size),
            Assert(produce < size),
            Assert(consume < size),
            Assert(
                stored
                == Mux(
                    produce == consume,
                    Mux(stored == 0, 0, size),
                    Mux(produce > consume, produce - consume, produce - consume + size),
                )
            ),
        ]
        behind: Value = fifo.r_rdy if self._buffered else Const(0)
        with m.If(waits & ~((ahead == 0) & behind)):
            m.d.comb += [
                Assert(ahead == place + behind, "in its place"),
                Assert(place < stored, "in the queue"),
                Assert(ram.content == content),
            ]
        if self._buffered:
            with m.If(waits & (ahead == 0) & fifo.r_rdy):
                m.d.comb += Assert(fifo.r_data == content, "next to leave")
        m.d.comb += [
            Assert(~waits | (ram.watched < size)),
            Cover(gone & (content == 0x5A)),
            Cover(waits & (ahead == 3)),
        ]
        return m
