"""Replicate stage: makes one frame header for each worker that a delivery goes to."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from afflux_hdl import wire
from afflux_hdl.layouts import Delivery, Header, JobEntry, Local, Peer, Reply, WorkerEntry
from afflux_hdl.parameters import Parameters

__all__ = ["FrameOrder", "Replicate"]

HEADERS = 8
"""Frame headers made ahead of the transmit stage: more than the pipeline holds."""


class FrameOrder(data.StructLayout):
    """One frame to be sent.

    Members:
        fence: Nothing to be sent.
        reply: The words are in ``words``, else in the slot memory.
        peer: Destination.
        ip_checksum: Header checksum as on the wire, the first octet in the low bits.
        header: Afflux header.
        slot: Slot number in the pool.
        words: First words of a short answer.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "fence": 1,
                "reply": 1,
                "peer": Peer,
                "ip_checksum": 16,
                "blocks": 5,
                "header": Header,
                "slot": parameters.slot_bits,
                "words": data.ArrayLayout(32, 4),
            }
        )


def _swap(word: Value) -> Value:
    """The 16-bit word with its octets exchanged: wire order to number and back."""
    return Cat(word[8:16], word[:8])


class Replicate(wiring.Component):
    """Turns deliveries into frame orders: a result to each joined worker in turn, a replay to one.

    Latency: 5 cycles. Throughput: one frame in each cycle, more than two-beat frames need. A result
    is discarded, worker by worker, if its job has another generation by then or its slot has gone
    further than one round: its version may have been overwritten.

    Members:
        local: The engine's addresses.
        i: Deliveries.
        done, done_delivery: ``i`` has been carried out.
        replies: Short answers, taken one for each delivery marked so.
        jobs: The job table.
        send_job, send_worker, sent: Worker table.
        send_slot, send_round: Slot state.
        o: Frames.
        idle: Nothing is under way.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        super().__init__(
            {
                "local": In(Local),
                "i": In(stream.Signature(Delivery(p))),
                "done": Out(1),
                "done_delivery": Out(Delivery(p)),
                "replies": In(stream.Signature(Reply)),
                "jobs": In(data.ArrayLayout(JobEntry(p), p.jobs)),
                "send_job": Out(p.job_bits),
                "send_worker": Out(p.worker_bits),
                "sent": In(WorkerEntry),
                "send_slot": Out(p.slot_bits),
                "send_round": In(32),
                "o": Out(stream.Signature(FrameOrder(p))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        order_shape = FrameOrder(p)
        m.submodules.orders = orders = SyncFIFO(
            width=data.Layout.cast(order_shape).size, depth=HEADERS
        )
        m.d.comb += [
            self.o.payload.as_value().eq(orders.r_data),
            self.o.valid.eq(orders.r_rdy),
            orders.r_en.eq(self.o.ready),
        ]

        # Stage 0: one delivery at a time, one worker after the other, as the queue behind allows.
        under_way = Signal(range(HEADERS + 1))
        worker = Signal(p.worker_bits)
        delivery = Signal(Delivery(p))
        busy, issue, last, retire = Signal(), Signal(), Signal(), Signal()
        job = self.jobs[delivery.job]
        m.d.comb += [
            issue.eq(busy & (under_way != HEADERS)),
            last.eq(~delivery.everyone | (worker == (job.workers - 1)[: p.worker_bits])),
            self.send_job.eq(delivery.job),
            self.send_worker.eq(worker),
            self.send_slot.eq(delivery.slot),
            self.i.ready.eq(~busy | (issue & last)),
            self.done.eq(issue & last),
            self.done_delivery.eq(delivery),
            self.replies.ready.eq(issue & delivery.reply & ~delivery.fence),
        ]
        with m.If(issue):
            m.d.sync += worker.eq(worker + 1)
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                delivery.eq(self.i.payload),
                worker.eq(Mux(self.i.payload.everyone, 0, self.i.payload.worker)),
            ]

        # Stage 1: the tables have answered.
        valid1, current1 = Signal(), Signal()
        delivery1, reply1 = Signal(Delivery(p)), Signal(Reply)
        worker1 = Signal(p.worker_bits)
        m.d.sync += valid1.eq(issue)
        with m.If(issue):
            m.d.sync += [
                current1.eq(job.enabled & (job.generation == delivery.generation)),
                delivery1.eq(delivery),
                reply1.eq(self.replies.payload),
                worker1.eq(worker),
            ]
        ahead = Signal(32)
        sendable = Signal()
        order2 = Signal(order_shape)
        m.d.comb += [
            ahead.eq(self.send_round - delivery1.header.round),
            sendable.eq(delivery1.reply | (current1 & self.sent.joined & (ahead[1:] == 0))),
        ]

        # Stage 2: the IPv4 header checksum (RFC 791) over what changes and what does not.
        valid2, valid3, valid4 = Signal(), Signal(), Signal()
        blocks = Signal(5)
        sum3 = Signal(20)
        fixed = 0x4500 + 0x4000 + (64 << 8 | 17)
        source = self.local.address
        m.d.comb += blocks.eq(sum(order2.header.present))
        m.d.sync += [valid2.eq(valid1 & sendable), valid3.eq(valid2), valid4.eq(valid3)]
        with m.If(valid1):
            m.d.sync += [
                order2.fence.eq(delivery1.fence),
                order2.reply.eq(delivery1.reply),
                order2.slot.eq(delivery1.slot),
                order2.words.eq(reply1.words),
                order2.peer.eq(Mux(delivery1.reply, reply1.peer, self.sent.peer)),
                order2.header.eq(Mux(delivery1.reply, reply1.header, delivery1.header)),
            ]
            with m.If(~delivery1.reply):
                m.d.sync += order2.header.worker.eq(worker1)
        order3 = Signal(order_shape)
        order4 = Signal(order_shape)
        folded = Signal(17)
        total_length = Signal(16)
        m.d.comb += [
            # 256 for each block: the number of blocks is the upper byte.
            total_length.eq(
                Cat(Const(wire.UDP_PAYLOAD_MIN + wire.UDP_BYTES + wire.IPV4_BYTES, 8), blocks)
            ),
            folded.eq(sum3[:16] + sum3[16:]),
        ]
        with m.If(valid2):
            m.d.sync += [
                order3.eq(order2),
                order3.blocks.eq(blocks),
                sum3.eq(
                    (fixed + total_length)
                    + (_swap(source[:16]) + _swap(source[16:]))
                    + (_swap(order2.peer.address[:16]) + _swap(order2.peer.address[16:]))
                ),
            ]
        with m.If(valid3):
            m.d.sync += [
                order4.eq(order3),
                order4.ip_checksum.eq(_swap(~(folded[:16] + folded[16:])[:16])),
            ]
        m.d.comb += [
            orders.w_data.eq(order4.as_value()),
            orders.w_en.eq(valid4),
            retire.eq(self.o.valid & self.o.ready),
        ]
        discarded = valid1 & ~sendable
        m.d.sync += under_way.eq(under_way + issue - retire - discarded)
        m.d.comb += self.idle.eq(~busy & (under_way == 0))
        return m
