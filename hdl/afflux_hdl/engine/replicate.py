"""Replicate stage: makes the headers of the frames that the delivery queue dispatches.

Proved: `tests/formal/stage_streams.py`. Tested: `tests/sim/test_engine_cases.py`,
`tests/sim/test_engine_tree.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import (
    FORMS,
    REPLY_WORDS,
    Dispatch,
    Header,
    JobEntry,
    JobPorts,
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
"""Frame headers that may be made ahead of the transmit stage: more than the pipeline holds. As many
frames, and the one that is being sent, are before a frame whose turn comes."""


class FrameOrder(data.StructLayout):
    """One frame to be sent.

    Members:
        reply: The words are in `words`; otherwise they are in the slot memory.
        job: Number of the job whose slot is read.
        peer: Destination.
        source_port: UDP port of this end, as on the wire.
        ip_checksum: Checksum of the IPv4 header, as on the wire.
        blocks: As in Dispatch.
        header: Afflux header.
        slot: Slot number in the pool.
        words: First words of a short answer.
        in_all, partial, rounded: As in Delivery.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "reply": 1,
                "job": parameters.job_bits,
                "peer": Peer(parameters.ports),
                "source_port": 16,
                "ip_checksum": 16,
                "blocks": parameters.units_bits,
                "header": Header,
                "slot": parameters.slot_bits,
                "words": data.ArrayLayout(32, REPLY_WORDS),
                **FORMS,
            }
        )


def _group_mac(address: Value) -> Value:
    """Return the Ethernet address of an IPv4 group (RFC 1112, section 6.4), as on the wire."""
    return Cat(Const(0x5E0001, 24), address[8:15], Const(0, 1), address[16:32])


class Replicate(wiring.Component):
    """Turns what the delivery queue dispatches into frame orders.

    A result goes to each joined worker in turn, or once to the job's multicast group; a replay goes
    to one worker, a partial sum to the parent. A result is discarded, worker by worker, if its job
    has another generation by then, or if its slot is more than one round ahead: its version may
    have been overwritten.

    Latency: 5 cycles. Throughput: one frame in each cycle, more than two-beat frames need.

    Members:
        local: The engine's addresses.
        i: Frames to be sent; one may come in the cycle after `room`, at most in every other cycle.
        room: There is room for another order.
        replies: Short answers; one is taken for each that is dispatched.
        jobs: The job table.
        read_worker: Worker table.
        read_route: Route table.
        read_round: Slot state.
        read_ports: If there are several network ports: port table.
        o: Frame orders.
        done, done_job: From the transmit stage: an order of this job does not read any more.
        busy_jobs: For each job: there are orders, ready or under way, that read its slots. Follows
            `i` after 3 cycles.
        discarded: A delivery is discarded, or a frame of it whose worker has not joined.
        idle: Nothing is in flight.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        super().__init__(
            {
                "local": In(Local),
                "i": In(stream.Signature(Dispatch(p), always_ready=True)),
                "room": Out(1),
                "replies": In(stream.Signature(Reply(p))),
                "jobs": In(data.ArrayLayout(JobEntry(p), p.jobs)),
                "read_worker": Out(ReadPort(WorkerAddress(p), WorkerEntry(p))),
                "read_route": Out(ReadPort(p.job_bits, Route)),
                "read_round": Out(ReadPort(p.slot_bits, 32)),
                **({"read_ports": Out(ReadPort(p.job_bits, JobPorts(p)))} if p.ports > 1 else {}),
                "o": Out(stream.Signature(FrameOrder(p))),
                "done": In(1),
                "done_job": In(p.job_bits),
                "busy_jobs": Out(p.jobs),
                "discarded": Out(1),
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

        # Stage 0: what is dispatched addresses the tables.
        under_way = Signal(range(HEADERS + 1))
        retire = Signal()
        frame = self.i.payload
        job = self.jobs[frame.job]
        # Room is computed a cycle ahead: what leaves in this cycle does not count yet.
        m.d.sync += self.room.eq(under_way + self.i.valid < HEADERS)
        m.d.comb += [
            self.read_worker.address.job.eq(frame.job),
            self.read_worker.address.worker.eq(frame.worker),
            self.read_route.address.eq(frame.job),
            self.read_round.address.eq(frame.slot),
            self.replies.ready.eq(self.i.valid & frame.answer),
        ]

        # Stage 1: the tables have answered.
        valid1, current1 = Signal(), Signal()
        frame1, reply1 = Signal(Dispatch(p)), Signal(Reply(p))
        following1 = Signal(32)
        m.d.sync += valid1.eq(self.i.valid)
        with m.If(self.i.valid):
            m.d.sync += [
                current1.eq(job.enabled & (job.generation == frame.generation)),
                frame1.eq(frame),
                reply1.eq(self.replies.payload),
                following1.eq(frame.header.round + 1),
            ]
        in_time = Signal()
        sendable = Signal()
        order2 = Signal(order_shape)
        m.d.comb += [
            in_time.eq(
                (self.read_round.data == frame1.header.round) | (self.read_round.data == following1)
            ),
            sendable.eq(
                frame1.answer
                | frame1.join
                | (current1 & (frame1.up | frame1.group | self.read_worker.data.joined) & in_time)
            ),
        ]
        route1 = self.read_route.data
        peer1, header1 = Signal(Peer(p.ports)), Signal(Header)
        with m.If(frame1.answer):
            m.d.comb += [peer1.eq(reply1.peer), header1.eq(reply1.header)]
        with m.Elif(frame1.up):
            m.d.comb += [
                peer1.eq(route1.parent),
                header1.eq(frame1.header),
                header1.job.eq(route1.parent_job),
                header1.key.eq(route1.parent_key),
                header1.worker.eq(route1.parent_worker),
            ]
        with m.Else():
            m.d.comb += [
                peer1.eq(self.read_worker.data.peer),
                header1.eq(frame1.header),
                header1.worker.eq(Mux(frame1.group, wire.EVERYONE, frame1.worker)),
            ]
            with m.If(frame1.group):
                m.d.comb += [
                    peer1.mac.eq(_group_mac(route1.group.address)),
                    peer1.address.eq(route1.group.address),
                    peer1.port.eq(route1.group.port),
                    # All who hear the group learn this key, which lets nobody join or contribute.
                    header1.key.eq(route1.group.key),
                ]

        if p.ports > 1:
            m.d.comb += self.read_ports.address.eq(frame.job)
            with m.If(~frame1.answer & frame1.up):
                m.d.comb += peer1.net_ports.eq(self.read_ports.data.parent)
            with m.Elif(~frame1.answer & frame1.group):
                m.d.comb += peer1.net_ports.eq(self.read_ports.data.group)

        # Stage 2: the IPv4 header checksum (RFC 791): a constant part, and what varies.
        valid2, valid3, valid4 = Signal(), Signal(), Signal()
        up2 = Signal()
        sum3 = Signal(20)
        fixed = (IPV4_WITHOUT_OPTIONS << 8) + DONT_FRAGMENT + (TIME_TO_LIVE << 8 | PROTOCOL_UDP)
        fixed += wire.UDP_PAYLOAD_MIN + wire.SEAL_BYTES + wire.UDP_BYTES + wire.IPV4_BYTES
        local_sum = Signal(19)
        source = reversed_octets(self.local.address)
        target = reversed_octets(order2.peer.address)
        m.d.sync += local_sum.eq(fixed + (source[:16] + source[16:]))
        m.d.sync += [valid2.eq(valid1 & sendable), valid3.eq(valid2), valid4.eq(valid3)]
        with m.If(valid1):
            m.d.sync += [
                order2.reply.eq(frame1.answer | frame1.join),
                order2.job.eq(frame1.job),
                order2.slot.eq(frame1.slot),
                order2.blocks.eq(Mux(frame1.answer, 0, frame1.blocks)),
                order2.words.eq(Mux(frame1.answer, reply1.words.as_value(), 0)),
                order2.peer.eq(peer1),
                order2.header.eq(header1),
                up2.eq(~frame1.answer & frame1.up),
            ]
            for name in FORMS:
                m.d.sync += order2[name].eq(frame1[name])
        own_port = Signal(16)
        order3 = Signal(order_shape)
        order4 = Signal(order_shape)
        folded = Signal(17)
        m.d.comb += [
            # The length has 256 for each block: their number is the upper byte.
            folded.eq((sum3[:16] + sum3[16:]) + Cat(Const(0, 8), order3.blocks)),
            # The parent port of job j is the engine's own, plus 1, plus j.
            own_port.eq(reversed_octets(self.local.port) + Mux(up2, order2.job + 1, 0)),
        ]
        with m.If(valid2):
            m.d.sync += [
                order3.eq(order2),
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
        # A discarded entry gives its place back a cycle later.
        discards, discarded = valid1 & ~sendable, Signal()
        m.d.sync += [
            discarded.eq(discards),
            under_way.eq(under_way + self.i.valid - retire - discarded),
            self.discarded.eq(discards & (frame1.last | (current1 & in_time))),
        ]
        m.d.comb += self.idle.eq((under_way == 0) & ~self.i.valid)

        # Orders of each job from here to the end of their reads.
        for n in range(p.jobs):
            reading = Signal(range(HEADERS + 2), name=f"reading_{n}")
            more, fewer = Signal(name=f"more_{n}"), Signal(name=f"fewer_{n}")
            m.d.comb += [
                more.eq(valid2 & ~order2.reply & (order2.job == n)),
                fewer.eq(self.done & (self.done_job == n)),
                self.busy_jobs[n].eq(reading != 0),
            ]
            with m.If(more & ~fewer):
                m.d.sync += reading.eq(reading + 1)
            with m.Elif(fewer & ~more):
                m.d.sync += reading.eq(reading - 1)
        # For proofs.
        self.under_way, self.orders, self.valid1, self.valid2 = under_way, orders, valid1, valid2
        self.valid3, self.valid4, self.sendable = valid3, valid4, sendable
        self.gives_back = discarded
        return m
