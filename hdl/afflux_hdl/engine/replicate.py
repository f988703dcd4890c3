"""Replicate stage: makes one frame header for each worker that a delivery goes to.

Proved: `tests/formal/stage_streams.py`. Tested: `tests/sim/test_engine_cases.py`,
`tests/sim/test_engine_tree.py`, `tests/sim/test_planted_bugs.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import (
    Delivery,
    Header,
    JobEntry,
    Reply,
    Route,
    WorkerAddress,
    WorkerEntry,
)
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.packet_stream import (
    DONT_FRAGMENT,
    IPV4_WITHOUT_OPTIONS,
    PROTOCOL_UDP,
    TIME_TO_LIVE,
    Local,
    Peer,
)
from afflux_hdl.lib.queue import Queue

__all__ = ["FrameOrder", "Replicate"]

HEADERS = 8
"""Frame headers that may be made ahead of the transmit stage: more than the pipeline holds."""


class FrameOrder(data.StructLayout):
    """One frame to be sent.

    Members:
        fence: There is nothing to send.
        reply: The words are in `words`; otherwise they are in the slot memory.
        peer: Destination.
        source_port: UDP port of this end, as on the wire.
        ip_checksum: Checksum of the IPv4 header, as on the wire.
        blocks: Number of blocks.
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
                "source_port": 16,
                "ip_checksum": 16,
                "blocks": 5,
                "header": Header,
                "slot": parameters.slot_bits,
                "words": data.ArrayLayout(32, 8),
            }
        )


def _group_mac(address: Value) -> Value:
    """Return the Ethernet address of an IPv4 group (RFC 1112, section 6.4), as on the wire."""
    return Cat(Const(0x5E0001, 24), address[8:15], Const(0, 1), address[16:32])


class Replicate(wiring.Component):
    """Turns deliveries into frame orders.

    A result goes to each joined worker in turn, or once to the job's multicast group; a replay goes
    to one worker, a partial sum to the parent. A result is discarded, worker by worker, if its job
    has another generation by then, or if its slot is more than one round ahead: its version may
    have been overwritten.

    Latency: 6 cycles. Throughput: one frame in each cycle, more than two-beat frames need.

    Members:
        local: The engine's addresses.
        i: Deliveries.
        done, done_delivery: The last order of this delivery has been issued.
        replies: Short answers; one is taken for each delivery of a reply.
        jobs: The job table.
        read_worker: Worker table.
        read_route: Route table.
        read_round: Slot state.
        o: Frame orders.
        idle: Nothing is in flight.
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
                "read_worker": Out(ReadPort(WorkerAddress(p), WorkerEntry)),
                "read_route": Out(ReadPort(p.job_bits, Route)),
                "read_round": Out(ReadPort(p.slot_bits, 32)),
                "o": Out(stream.Signature(FrameOrder(p))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        order_shape = FrameOrder(p)
        m.submodules.orders = orders = Queue(
            order_shape, depth=HEADERS, buffered=False, always_ready=True
        )
        wiring.connect(m, orders.o, wiring.flipped(self.o))

        # Stage 0: one delivery at a time, one worker after the other, as the queue behind allows.
        under_way = Signal(range(HEADERS + 1))
        worker = Signal(p.worker_bits)
        delivery = Signal(Delivery(p))
        last_worker = Signal(p.worker_bits)
        to_group = Signal()
        busy, issue, last, retire = Signal(), Signal(), Signal(), Signal()
        room = Signal()
        job = self.jobs[delivery.job]
        # Room is computed a cycle ahead: what leaves in this cycle does not count yet.
        m.d.sync += room.eq(under_way + issue < HEADERS)
        m.d.comb += [
            issue.eq(busy & room),
            self.read_worker.address.job.eq(delivery.job),
            self.read_worker.address.worker.eq(worker),
            self.read_route.address.eq(delivery.job),
            self.read_round.address.eq(delivery.slot),
            self.i.ready.eq(~busy | (room & last)),
            self.done.eq(issue & last),
            self.done_delivery.eq(delivery),
            self.replies.ready.eq(issue & delivery.reply & ~delivery.up & ~delivery.fence),
        ]
        # Whether `worker` is the last one, kept in a register.
        with m.If(issue):
            m.d.sync += [worker.eq(worker + 1), last.eq((worker + 1)[: len(worker)] == last_worker)]
        # The receivers are settled when a delivery is taken: a job's table entry changes only
        # behind a fence.
        taken = self.i.payload
        taken_job = self.jobs[taken.job]
        first = Mux(taken.everyone, 0, taken.worker)
        to_all = taken.everyone & ~taken.up & ~taken_job.group
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                delivery.eq(taken),
                worker.eq(first),
                last_worker.eq(Mux(to_all, taken_job.workers - 1, first)),
                last.eq(~to_all | (taken_job.workers == 1)),
                to_group.eq(taken.everyone & ~taken.up & taken_job.group),
            ]

        # Stage 1: the tables have answered.
        valid1, current1, to_group1 = Signal(), Signal(), Signal()
        delivery1, reply1 = Signal(Delivery(p)), Signal(Reply)
        worker1 = Signal(p.worker_bits)
        m.d.sync += valid1.eq(issue)
        with m.If(issue):
            m.d.sync += [
                current1.eq(job.enabled & (job.generation == delivery.generation)),
                to_group1.eq(to_group),
                delivery1.eq(delivery),
                reply1.eq(self.replies.payload),
                worker1.eq(worker),
            ]
        following1 = Signal(32)
        with m.If(issue):
            m.d.sync += following1.eq(delivery.header.round + 1)
        in_time = Signal()
        sendable = Signal()
        order2 = Signal(order_shape)
        m.d.comb += [
            in_time.eq(
                (self.read_round.data == delivery1.header.round)
                | (self.read_round.data == following1)
            ),
            sendable.eq(
                delivery1.reply
                | (current1 & (delivery1.up | to_group1 | self.read_worker.data.joined) & in_time)
            ),
        ]
        route1 = self.read_route.data
        peer1, header1 = Signal(Peer), Signal(Header)
        with m.If(delivery1.up):
            m.d.comb += [
                peer1.eq(route1.parent),
                header1.eq(delivery1.header),
                header1.job.eq(route1.parent_job),
                header1.key.eq(route1.parent_key),
                header1.worker.eq(route1.parent_worker),
            ]
        with m.Elif(delivery1.reply):
            m.d.comb += [peer1.eq(reply1.peer), header1.eq(reply1.header)]
        with m.Else():
            m.d.comb += [
                peer1.eq(self.read_worker.data.peer),
                header1.eq(delivery1.header),
                header1.worker.eq(Mux(to_group1, wire.EVERYONE, worker1)),
            ]
            with m.If(to_group1):
                m.d.comb += [
                    peer1.mac.eq(_group_mac(route1.group.address)),
                    peer1.address.eq(route1.group.address),
                    peer1.port.eq(route1.group.port),
                    # All who hear the group learn this key, which lets nobody join or contribute.
                    header1.key.eq(route1.group.key),
                ]

        # Stage 2: the IPv4 header checksum (RFC 791): a constant part, and what varies.
        valid2, valid3, valid4 = Signal(), Signal(), Signal()
        up2, job2 = Signal(), Signal(p.job_bits)
        blocks = Signal(5)
        sum3 = Signal(20)
        fixed = (IPV4_WITHOUT_OPTIONS << 8) + DONT_FRAGMENT + (TIME_TO_LIVE << 8 | PROTOCOL_UDP)
        fixed += wire.UDP_PAYLOAD_MIN + wire.UDP_BYTES + wire.IPV4_BYTES
        local_sum = Signal(19)
        source = reversed_octets(self.local.address)
        target = reversed_octets(order2.peer.address)
        m.d.comb += blocks.eq(sum(order2.header.present))
        m.d.sync += local_sum.eq(fixed + (source[:16] + source[16:]))
        m.d.sync += [valid2.eq(valid1 & sendable), valid3.eq(valid2), valid4.eq(valid3)]
        with m.If(valid1):
            m.d.sync += [
                order2.fence.eq(delivery1.fence),
                order2.reply.eq(delivery1.reply),
                order2.slot.eq(delivery1.slot),
                order2.words.eq(Mux(delivery1.up, 0, reply1.words.as_value())),
                order2.peer.eq(peer1),
                order2.header.eq(header1),
                up2.eq(delivery1.up),
                job2.eq(delivery1.job),
            ]
        own_port = Signal(16)
        order3 = Signal(order_shape)
        order4 = Signal(order_shape)
        folded = Signal(17)
        m.d.comb += [
            # The length has 256 for each block: their number is the upper byte.
            folded.eq((sum3[:16] + sum3[16:]) + Cat(Const(0, 8), order3.blocks)),
            # The parent port of job j is the engine's own, plus 1, plus j.
            own_port.eq(reversed_octets(self.local.port) + Mux(up2, job2 + 1, 0)),
        ]
        with m.If(valid2):
            m.d.sync += [
                order3.eq(order2),
                order3.blocks.eq(blocks),
                order3.source_port.eq(reversed_octets(own_port)),
                sum3.eq(local_sum + (target[:16] + target[16:])),
            ]
        with m.If(valid3):
            m.d.sync += [
                order4.eq(order3),
                order4.ip_checksum.eq(reversed_octets(~(folded[:16] + folded[16:])[:16])),
            ]
        m.d.comb += [
            orders.i.payload.eq(order4),
            orders.i.valid.eq(valid4),
            retire.eq(self.o.valid & self.o.ready),
        ]
        discarded = valid1 & ~sendable
        m.d.sync += under_way.eq(under_way + issue - retire - discarded)
        m.d.comb += self.idle.eq(~busy & (under_way == 0))
        return m
