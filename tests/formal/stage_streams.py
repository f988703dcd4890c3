"""Proofs: the streams between the stages keep their rule, and queues behind them never overflow.

Each stage as it is, with anything at its other ports, at any time.
"""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Const, Cover, Elaboratable, Module, Signal, Value
from amaranth.lib.wiring import Component, In

from afflux_hdl.engine.delivery_queue import DeliveryQueue
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.receive import SUMMARY_DEPTH, SUMMARY_MARGIN, Receive
from afflux_hdl.engine.replicate import HEADERS, Replicate
from tests.formal import seams
from tests.formal.inside import Inside
from tests.formal.watched import WatchedMemory, watching

__all__ = ["DeliveryQueueHarness", "ReceiveHarness", "ReplicateHarness", "drive"]

STAGES = 7
"""Frames that may be in the receive stage's pipeline."""


def drive(m: Module, part: Component, *, constant: tuple[str, ...] = ()) -> None:
    """Anything at all inputs; local addresses that are named stay as they are."""
    for path, member, value in part.signature.flatten(part):
        if member.flow is In:
            signal = Value.cast(value)
            # Some streams are always ready.
            if not isinstance(signal, Const):
                m.d.comb += signal.eq(AnySeq(len(signal)))
    for name in constant:
        seams.LOCAL_STAYS.assume(m, Value.cast(getattr(part, name)))


class _StageHarness(Elaboratable):
    """A stage with a queue at its output."""

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def _place(
        self, m: Module, part: Component, platform: object, of: str
    ) -> tuple[Inside, list[WatchedMemory]]:
        with watching(
            "amaranth.lib.fifo", "afflux_hdl.lib.ram", "afflux_hdl.engine.delivery_queue"
        ) as made:
            inside = Inside(part, platform)
            m.submodules.stage = inside.fragment
        seams.STREAM.guarantee(m, part.o, of=of)
        waited = Signal()
        m.d.sync += waited.eq(part.o.valid & ~part.o.ready)
        m.d.comb += Cover(waited & part.o.ready)
        return inside, made


class ReceiveHarness(_StageHarness):
    """`Receive.o`: summaries of frames. Frames of any length, at any time, one beat a cycle."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        receive = Receive(self._parameters)
        inside, _ = self._place(m, receive, platform, "receive")
        drive(m, receive)
        queue = inside["summaries.fifo"]
        m.d.comb += Assert(~queue.w_en | queue.w_rdy, "the queue does not overflow")
        seams.SUMMARY.guarantee(m, inside["summaries"].i)
        # Where frames are that will come to the queue, for the induction.
        index, index1 = inside["index"], inside["index1"]
        valid1, beat1 = inside["valid1"], inside["beat1"]
        open_, coming = Signal(), Signal(4)
        with m.If(valid1):
            m.d.sync += open_.eq(~beat1.last)
            m.d.comb += [
                Assert((index1 != 0) == open_),
                Assert((index != 0) == ~beat1.last),
            ]
        with m.Else():
            m.d.comb += Assert((index != 0) == open_)
        m.d.comb += Assert(index <= inside["index_limit"])
        m.d.comb += [
            coming.eq(
                (open_ & inside["taken"])
                + (inside["ended2"] & inside["taken2"])
                + sum(
                    inside[flags].ended & ~inside[flags].overflow
                    for flags in ("flags3", "flags4", "flags5")
                )
                + inside["push"]
            ),
            Assert(queue.level + coming <= SUMMARY_DEPTH - SUMMARY_MARGIN + STAGES),
        ]
        return m


class DeliveryQueueHarness(_StageHarness):
    """`DeliveryQueue.o`: deliveries."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        queue = DeliveryQueue(self._parameters)
        self._place(m, queue, platform, "delivery queue")
        drive(m, queue)
        return m


class ReplicateHarness(_StageHarness):
    """`Replicate.o`: frame orders."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        replicate = Replicate(self._parameters)
        # This queue's words are read without a register: only one of them is real, any one.
        with watching("amaranth.lib.fifo") as made:
            inside = Inside(replicate, platform)
            m.submodules.stage = inside.fragment
        drive(m, replicate)
        orders = inside["orders.fifo"]
        watched = AnyConst(len(made[0].watched))
        m.d.comb += made[0].watched.eq(watched)
        here = inside["orders.fifo.consume"] == watched
        seams.STREAM.guarantee(m, replicate.o, here, of="replicate")
        lanes = self._parameters.lanes
        seams.DELIVERY.require(m, replicate.i, lanes=lanes)
        seams.REPLY.require(m, replicate.replies)
        # As they enter the queue behind the pipeline, which keeps them.
        seams.ORDER.guarantee(m, inside["orders"].i, lanes=lanes)
        delivery, delivery1 = inside["delivery"], inside["delivery1"]
        m.d.comb += [
            Assert((delivery.header.present >> lanes) == 0),
            Assert((delivery1.header.present >> lanes) == 0),
        ]
        waited = Signal()
        m.d.sync += waited.eq(replicate.o.valid & ~replicate.o.ready)
        on_its_way = sum(inside[f"valid{n}"] for n in (1, 2, 3, 4))
        m.d.comb += [
            Assert(inside["under_way"] <= HEADERS),
            Assert(inside["under_way"] == orders.level + on_its_way, "all orders are counted"),
            Assert(~orders.w_en | orders.w_rdy, "the queue does not overflow"),
            Cover(waited & replicate.o.ready),
        ]
        return m
