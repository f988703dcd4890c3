"""Proof: how soon an order can follow the delivery that it is for, and that it is for the same.

The delivery queue and the replicate stage as they are, in the engine's own wiring; anything at all
comes from the merge stage, and transmit takes orders when it likes. One delivery is chosen. Of the
words in the two memories on its way only this is kept: what holds of each as it is written. It is
enough, because all of it stays true while time goes on.

Also shown: the rule of the stream of orders, that their queue never overflows, and that an order
announces the lanes and the number of blocks that its delivery has.
"""

from amaranth.hdl import Assert, Const, Cover, Elaboratable, Module, Signal, Value
from amaranth.lib import data

from afflux_hdl.engine.layouts import Delivery
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.replicate import HEADERS, FrameOrder
from tests.formal import seams
from tests.formal.boxes import BoxedEngine
from tests.formal.contracts import choose
from tests.formal.watched import AnyMemory, watching

__all__ = ["ORDER_AGE", "Chosen", "DispatchHarness"]

ORDER_AGE = 8
"""Cycles from a delivery's leaving the merge stage to its first order, at least."""

AGE_MAX = 15

ON_THEIR_WAY = ("valid1", "valid2", "valid3", "valid4", "gives_back")
"""Registers of the replicate stage: each counts one order, or the place that one gives back."""


class Chosen:
    """One delivery, chosen as it leaves the merge stage, and the cycles since.

    Attributes:
        delivery: It.
        age: 0 until then; 1 in the next cycle, and so on up to a largest age.
    """

    def __init__(self, m: Module, p: Parameters, stream: object, age_max: int = AGE_MAX) -> None:
        self.delivery = Signal(Delivery(p), name="chosen")
        self.age = Signal(range(age_max + 1), name="chosen_age")
        now = Signal()
        payload = stream.payload  # type: ignore[attr-defined]
        m.d.comb += now.eq(stream.valid & seams.tag(payload.header))  # type: ignore[attr-defined]
        with m.If(now):
            m.d.sync += [self.delivery.eq(payload), self.age.eq(1)]
        with m.Elif((self.age != 0) & (self.age != age_max)):
            m.d.sync += self.age.eq(self.age + 1)
        self.now = now


class DispatchHarness(Elaboratable):
    """See above."""

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        with watching(
            "amaranth.lib.fifo",
            "afflux_hdl.engine.delivery_queue",
            "afflux_hdl.engine.rings",
            "afflux_hdl.engine.scheduler",
            kind=AnyMemory,
        ) as memories:
            engine = BoxedEngine(m, p, ("DeliveryQueue", "Replicate"), platform)
        for name in ("receive", "admit", "transmit", "slot_state", "slot_memory"):
            engine.anything(engine[name])
        for name in ("worker_table", "route_table", "control", "counters", "merge"):
            engine.anything(engine[name])
        merge, queue, replicate = engine["merge"], engine["queue"], engine["replicate"]
        seams.DELIVERY.require(m, merge.o, queue.phase, lanes=p.lanes)
        seams.REPLY.require(m, replicate.replies)
        chosen = Chosen(m, p, merge.o)
        choose(m, ~chosen.now | (chosen.age == 0), "one delivery")

        # The two memories on the way.
        entries = engine["queue.entries"]
        (orders,) = (
            each
            for each in memories
            if each.depth == HEADERS and len(each.content) == data.Layout.cast(FrameOrder(p)).size
        )
        kept = {"lanes": p.lanes}
        write, read = entries.writes[0], entries.reads[0]
        self._kept(m, write.en, write.data, read.data, chosen, 2, memory="entries", age=1, **kept)
        write, read = orders.writes[0], orders.reads[0]
        self._kept(
            m,
            write.en,
            data.View(FrameOrder(p), write.data),
            data.View(FrameOrder(p), read.data),
            chosen,
            1,
            memory="orders",
            age=ORDER_AGE - 1,
            **kept,
        )
        seams.RINGS.guarantee(m, engine["queue.rings"])
        # For the induction: only a job of which nothing is sent has its rings emptied.
        closed = engine["queue.closed"].bit_select(engine["queue.closing_job"], 1)
        m.d.comb += Assert(~engine["queue.closing"] | closed)
        seams.ORDER.guarantee(m, replicate.o, lanes=p.lanes)
        seams.ORDER_AGE.guarantee(m, replicate.o, chosen.age, chosen.delivery, least=ORDER_AGE)

        # On its way from the one to the other.
        under_way = engine["replicate.under_way"]
        level = engine["replicate.orders.fifo"].level
        on_its_way = sum(engine[f"replicate.{name}"] for name in ON_THEIR_WAY)
        fifo = engine["replicate.orders.fifo"]
        m.d.comb += [
            Assert(~fifo.w_en | fifo.w_rdy, "the queue of orders does not overflow"),
            Assert(under_way <= HEADERS),
            Assert(under_way == level + on_its_way, "all orders are counted"),
            Cover(replicate.o.valid & seams.tag(replicate.o.payload.header)),
            Cover(under_way == HEADERS),
        ]
        return m

    def _kept(
        self,
        m: Module,
        writes: Value,
        written: data.View,
        read: data.View,
        chosen: Chosen,
        delay: int,
        *,
        memory: str,
        age: int,
        lanes: int,
    ) -> None:
        """Let words that are read keep what they had when written, `delay` cycles before at least.

        The memory of the delivery queue is read with a register; the orders' without one.
        """
        parameters = {"memory": memory, "lanes": lanes, "age_least": age}
        seams.KEPT.guarantee(m, writes, written, chosen.age, chosen.delivery, **parameters)
        then: Value = chosen.age
        for n in range(delay):
            before = Signal.like(chosen.age, name=f"{memory}_age_{n}")
            m.d.sync += before.eq(then)
            then = before
        seams.KEPT.require(m, Const(1), read, then, chosen.delivery, **parameters)
