"""Admit stage: decides what becomes of each frame, by its job, its worker and its slot's state.

::

    cycle   0             1              2             3                      4
    i ─► job table   ─► comparisons ─► comparisons ─► Verdict ─► new state ─► o (SlotOperation)
         worker table   slot address   of rounds,        │           │        replies
         route table         ▲         Screen            │           │
                             └──────── slot state ◄──────────────────┘

The slot's state changes here, at once; words and blocks follow in the merge stage, in order.

Proved: `tests/formal/admission.py`. Tested: `tests/sim/test_engine_cases.py`,
`tests/sim/test_engine_random.py`, `tests/hdl/test_latency.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import (
    Cause,
    FrameSummary,
    JobEntry,
    OperationKind,
    Reply,
    Route,
    SlotOperation,
    WorkerAddress,
    WorkerEntry,
)
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_state import SlotState, VersionState
from afflux_hdl.engine.verdict import Checks, RoundPosition, Screen, Screened, Verdict
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.packet_stream import Peer
from afflux_hdl.lib.rate_limit import RateLimit

__all__ = ["REFUSALS_BURST", "REFUSAL_PERIOD_BITS", "Admit"]

REFUSALS_BURST = 64
"""Refusals that may follow one another at once: all workers of a job with a wrong key."""

REFUSAL_PERIOD_BITS = 16
"""Binary logarithm of the cycles for each further refusal: 3,815 a second at 250 MHz."""


class Admit(wiring.Component):
    """Decides what becomes of frames.

    Latency: 4 cycles from a summary on `i` to its operation on `o`, one more at the wrong phase.
    Throughput: one frame in two cycles, taken when `phase` is 0; one that occupies the receive
    buffer, and no other comes here, takes at least two to arrive. `i` waits while `o_full`. A reply
    is dropped and counted if it finds `replies_full`; its worker asks again. Whom a refusal goes to
    nobody has verified: it is dropped if it finds `refusals_full` or goes beyond the rate of
    `REFUSALS_BURST` and `REFUSAL_PERIOD_BITS`.

    A slot's state is addressed one cycle after a frame is taken and written two cycles later: in
    the very cycle in which the next frame, two cycles behind, addresses it. Likewise, a JOIN is
    written while the next frame's worker is looked up. Both memories are transparent: they read
    what is written in the same cycle.

    Members:
        phase: Alternates from cycle to cycle. The worker table is addressed and written when it is
            0, slot state when it is 1.
        i: Frames.
        o: Operations for the merge stage, in order of arrival.
        o_full: The queue behind `o` has no room for the frames in flight.
        jobs: The job table.
        read_worker, write_worker: Worker table.
        read_route: Route table.
        read_state, write_state: Slot state.
        state_broken: With what `read_state` reads: a bit of it has flipped. The frame is dropped.
        parent_joined, parent_joined_job: A job's parent has confirmed its JOIN.
        parent_ports: If there are several network ports: with it, the one by which it has.
        started, started_job: A contribution to a job has been accepted.
        replies: Short answers.
        replies_full, refusals_full: Their queue has no room for another one, or for a refusal.
        judged, cause: A frame is counted in this cycle, by this counter.
        accepted_blocks: Number of blocks of the contribution accepted in this cycle.
        completed, conflicted: A frame completes a round; and the round is a conflict.
        reply_dropped, refusal_dropped: A reply is dropped in this cycle; a refusal is.
        idle: No frame is in flight.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        p = parameters
        state = SlotState(p)
        super().__init__(
            {
                "phase": In(1),
                "i": In(stream.Signature(FrameSummary(p))),
                "o": Out(stream.Signature(SlotOperation(p), always_ready=True)),
                "o_full": In(1),
                "jobs": In(data.ArrayLayout(JobEntry(p), p.jobs)),
                "read_worker": Out(ReadPort(WorkerAddress(p), WorkerEntry(p))),
                "write_worker": Out(WritePort(WorkerAddress(p), WorkerEntry(p))),
                "read_route": Out(ReadPort(p.job_bits, Route)),
                "read_state": Out(ReadPort(p.slot_bits, state)),
                "state_broken": In(1),
                "write_state": Out(WritePort(p.slot_bits, state)),
                "parent_joined": Out(1),
                "parent_joined_job": Out(p.job_bits),
                **({"parent_ports": Out(p.ports)} if p.ports > 1 else {}),
                "started": Out(1),
                "started_job": Out(p.job_bits),
                "replies": Out(stream.Signature(Reply(p), always_ready=True)),
                "replies_full": In(1),
                "refusals_full": In(1),
                "judged": Out(1),
                "cause": Out(Cause),
                "accepted_blocks": Out(5),
                "completed": Out(1),
                "conflicted": Out(1),
                "reply_dropped": Out(1),
                "refusal_dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters

        # Cycle 0: take a frame, look its job, worker and route up.
        take = Signal()
        frame = self.i.payload
        m.d.comb += [
            take.eq(self.i.valid & ~self.phase & ~self.o_full),
            self.i.ready.eq(~self.phase & ~self.o_full),
            self.read_worker.address.job.eq(frame.job),
            self.read_worker.address.worker.eq(frame.header.worker),
            self.read_route.address.eq(frame.job),
        ]
        valid1 = Signal()
        frame1 = Signal(FrameSummary(p))
        job1 = Signal(JobEntry(p))
        m.d.sync += [valid1.eq(take), frame1.eq(frame), job1.eq(self.jobs[frame.job])]

        # Cycle 1: compare with the tables' answers, address the slot.
        slot1 = Signal(p.slot_bits)
        m.d.comb += [slot1.eq(job1.base + frame1.header.slot), self.read_state.address.eq(slot1)]
        header1, source1 = frame1.header, frame1.source
        route1, entry1 = self.read_route.data, self.read_worker.data
        from_parent1 = frame1.from_parent
        checks2 = Signal(Checks)
        # Long comparisons are made in parts, which the next cycle puts together.
        key = Mux(from_parent1, route1.parent_key, job1.key)
        expected = data.View(
            Peer(),
            Mux(
                from_parent1,
                route1.parent.as_value(),
                # By which port a frame comes does not matter.
                entry1.peer.as_value()[: Peer().size],
            ),
        )
        key2, address2 = Signal(4), Signal(4)
        # The job's entry shows a contribution that was accepted at least two frames before; that of
        # the frame before, which is in cycle 3 now, comes from there.
        started2, follows2 = Signal(), Signal()
        valid3, frame3 = Signal(), Signal.like(frame1)
        m.d.sync += [
            *(
                key2[n].eq(header1.key.word_select(n, 16) == key.word_select(n, 16))
                for n in range(4)
            ),
            address2[0].eq(from_parent1 | entry1.joined),
            address2[1].eq(source1.address[:16] == expected.address[:16]),
            address2[2].eq(source1.address[16:] == expected.address[16:]),
            address2[3].eq(source1.port == expected.port),
            started2.eq(self.jobs[frame1.job].started),
            follows2.eq(valid3 & (frame3.job == frame1.job)),
        ]
        valid2 = Signal()
        frame2 = Signal.like(frame1)
        job2 = Signal.like(job1)
        slot2 = Signal.like(slot1)
        group2 = Signal(route1.group.shape())
        m.d.sync += [
            valid2.eq(valid1),
            frame2.eq(frame1),
            job2.eq(job1),
            slot2.eq(slot1),
            group2.eq(route1.group),
            checks2.good.eq(frame1.good),
            checks2.refused_version.eq(frame1.refused_version),
            checks2.checksum.eq(frame1.checksum),
            checks2.from_parent.eq(from_parent1),
            checks2.job.eq(
                frame1.job_built
                & job1.enabled
                & (~from_parent1 | (job1.parent & (header1.job == route1.parent_job)))
            ),
            checks2.worker.eq(
                Mux(
                    from_parent1,
                    header1.worker == route1.parent_worker,
                    header1.worker < job1.workers,
                )
            ),
            checks2.slot.eq(header1.slot < job1.count),
            checks2.lanes.eq((header1.present & ~job1.lane_mask) == 0),
            checks2.empty.eq(header1.present == 0),
        ]
        # Rounds next to the frame's, so that cycle 2 only has to compare.
        before2, after2 = Signal(32), Signal(32)
        m.d.sync += [before2.eq(header1.round - 1), after2.eq(header1.round + 1)]

        # Cycle 2: the slot's state is here; where in it does the frame's round lie?
        header2, state2 = frame2.header, self.read_state.data
        same2 = Signal()
        m.d.comb += [
            same2.eq(state2.round == header2.round),
        ]
        # What needs no slot state is decided here: a JOIN must be in the table when the next
        # frame's worker is looked up.
        m.submodules.screen = screen = Screen()
        m.d.comb += [
            screen.type.eq(header2.type),
            screen.checks.eq(checks2),
            screen.checks.key.eq(key2.all()),
            screen.checks.address.eq(address2.all()),
            screen.checks.settled.eq(
                ~job2.moves
                & (started2 | (follows2 & self.started))
                & address2[0]
                & ~address2[1:].all()
            ),
            self.write_worker.enable.eq(valid2 & screen.o.join),
            self.write_worker.address.job.eq(frame2.job),
            self.write_worker.address.worker.eq(header2.worker),
            self.write_worker.data.joined.eq(1),
            self.write_worker.data.peer.eq(frame2.source),
        ]
        # A slot whose state is broken takes part in nothing any more.
        screened2 = Signal(Screened)
        m.d.comb += screened2.eq(screen.o)
        with m.If(self.state_broken & (screen.o.contribution | screen.o.probe | screen.o.result)):
            m.d.comb += [
                screened2.cause.eq(Cause.STATE_ERRORS),
                screened2.contribution.eq(0),
                screened2.probe.eq(0),
                screened2.result.eq(0),
            ]
        checks3 = Signal(Checks)
        screened3 = Signal(Screened)
        position3 = Signal(RoundPosition)
        job3 = Signal.like(job1)
        slot3 = Signal.like(slot1)
        group3 = Signal.like(group2)
        state3 = Signal.like(state2)
        this = Signal(VersionState, name="this3")
        own3 = Signal(p.workers)
        held2 = state2.versions[header2.round[0]]
        differs3 = Signal(3)
        borrow3 = Signal()
        left_opened3, left_joined3 = Signal(p.count_bits), Signal(p.count_bits)
        one_worker3, one_left3 = Signal(), Signal()
        m.d.sync += [
            valid3.eq(valid2),
            checks3.eq(screen.checks),
            screened3.eq(screened2),
            frame3.eq(frame2),
            job3.eq(job2),
            slot3.eq(slot2),
            group3.eq(group2),
            state3.eq(state2),
            borrow3.eq(header2.round[:16] < state2.round[:16]),
            differs3[0].eq(held2.operation[:8] != header2.operation[:8]),
            differs3[1].eq(held2.operation[8:] != header2.operation[8:]),
            differs3[2].eq((held2.opcode != header2.opcode) | (held2.dtype != header2.dtype)),
            left_opened3.eq(job2.workers - 1),
            left_joined3.eq(state2.left - 1),
            this.eq(held2),
            own3.eq(1 << header2.worker[: p.worker_bits]),
            one_worker3.eq(job2.workers == 1),
            one_left3.eq(state2.left == 1),
            position3.next.eq(state2.round == before2),
            position3.same.eq(same2),
            position3.previous.eq(state2.round == after2),
            position3.held.eq(held2.held),
            position3.full.eq(state2.left == 0),
            position3.waiting.eq(state2.waiting),
            position3.own_seen.eq(state2.seen.bit_select(header2.worker[: p.worker_bits], 1)),
        ]

        # Cycle 3: decide, and write the state back.
        m.submodules.verdict = verdict = Verdict()
        header = frame3.header
        version = header.round[0]
        # The lower halves of the rounds have been compared.
        distance = Signal(16)
        m.d.comb += [
            distance.eq(header.round[16:] - state3.round[16:] - borrow3),
            verdict.screened.eq(screened3),
            verdict.position.eq(position3),
            verdict.position.early.eq(~distance[-1] & ~position3.same),
        ]
        # For what is accepted or taken, these two equal the verdict, but are known sooner.
        takes, opens = Signal(), Signal()
        is_conflict, filled, completed = Signal(), Signal(), Signal()
        left = Signal(p.count_bits)
        after = Signal(SlotState(p))
        held = Signal(VersionState)
        m.d.comb += [
            is_conflict.eq(header.type == wire.Type.CONFLICT),
            takes.eq(screened3.result),
            opens.eq(~takes & position3.next),
            left.eq(Mux(opens, left_opened3, left_joined3)),
            filled.eq(verdict.accept & Mux(opens, one_worker3, one_left3)),
            completed.eq((filled & ~job3.parent) | verdict.take),
            after.eq(state3),
            after.round.eq(header.round),
            after.waiting.eq(filled & job3.parent),
            held.eq(this),
        ]
        with m.If(~takes):
            m.d.comb += [
                after.seen.eq(Mux(opens, 0, state3.seen) | own3),
                after.left.eq(left),
            ]
        with m.If(takes):
            m.d.comb += [held.present.eq(header.present), held.conflict.eq(is_conflict)]
        with m.Elif(opens):
            m.d.comb += [
                held.held.eq(1),
                held.present.eq(header.present),
                held.operation.eq(header.operation),
                held.opcode.eq(header.opcode),
                held.dtype.eq(header.dtype),
                held.conflict.eq(is_conflict),
            ]
        with m.Else():
            m.d.comb += [
                held.present.eq(this.present | header.present),
                held.conflict.eq(this.conflict | differs3.any() | is_conflict),
            ]
        for number in range(2):
            with m.If(version == number):
                m.d.comb += after.versions[number].eq(held)
        m.d.comb += [
            self.write_state.enable.eq(valid3 & (verdict.accept | verdict.take)),
            self.write_state.address.eq(slot3),
            self.write_state.data.eq(after),
            self.parent_joined.eq(valid3 & screened3.parent_joined),
            self.parent_joined_job.eq(frame3.job),
        ]

        if p.ports > 1:
            m.d.comb += self.parent_ports.eq(frame3.source.net_ports)

        # Cycle 4: the reply, if any. Its words are those of section 5.4.
        wants_reply, fits = Signal(), Signal()
        refused = screened3.refusal != 0
        m.submodules.limit = limit = RateLimit(
            burst=REFUSALS_BURST, period_bits=REFUSAL_PERIOD_BITS
        )
        m.d.comb += [
            wants_reply.eq((verdict.answer != 0) | refused),
            fits.eq(Mux(refused, ~self.refusals_full & limit.ready, ~self.replies_full)),
        ]
        if p.ram_output_register:
            # Frames are two cycles apart, so the next one finds this one counted all the same.
            m.d.sync += limit.take.eq(valid3 & refused & fits)
        else:
            m.d.comb += limit.take.eq(valid3 & refused & fits)
        reply4 = Signal(Reply(p))
        reply_valid4 = Signal()
        m.d.sync += [
            reply_valid4.eq(valid3 & wants_reply & fits),
            self.reply_dropped.eq(valid3 & wants_reply & ~refused & ~fits),
            self.refusal_dropped.eq(valid3 & refused & ~fits),
            reply4.peer.eq(frame3.source),
            reply4.header.eq(header),
            reply4.header.version.eq(wire.VERSION),
            reply4.header.type.eq(Mux(refused, wire.Type.REFUSED, verdict.answer)),
            reply4.header.present.eq(0),
            reply4.words.eq(0),
        ]
        with m.If(refused):
            m.d.sync += [reply4.words[0].eq(screened3.refusal), reply4.words[1].eq(wire.VERSION)]
        with m.Elif(screened3.join):
            m.d.sync += [
                reply4.words[0].eq(job3.workers),
                reply4.words[1].eq(job3.lanes),
                reply4.words[2].eq(job3.count),
                reply4.words[3].eq(job3.credit),
            ]
            with m.If(job3.group):
                m.d.sync += [
                    reply4.words[4].eq(reversed_octets(group3.address)),
                    reply4.words[5].eq(reversed_octets(group3.port)),
                    reply4.words[6].eq(group3.key[:32]),
                    reply4.words[7].eq(group3.key[32:]),
                ]
        with m.Else():
            with m.If(verdict.missing_seen):
                m.d.sync += [
                    reply4.words[0].eq(state3.seen[:32]),
                    reply4.words[1].eq(state3.seen[32:]),
                ]
            m.d.sync += reply4.words[2].eq(state3.round)
        m.d.comb += [self.replies.payload.eq(reply4), self.replies.valid.eq(reply_valid4)]

        # Cycle 4: the operation.
        changes, up = Signal(), Signal()
        m.d.comb += [
            changes.eq(verdict.accept | verdict.take),
            up.eq(
                Mux(
                    verdict.accept, job3.parent, verdict.replay & position3.same & position3.waiting
                )
            ),
        ]
        valid4 = Signal()
        operation4 = Signal(SlotOperation(p))
        delivery = operation4.delivery
        sent = data.View(VersionState, Mux(changes, held.as_value(), this.as_value()))
        with m.If(changes):
            m.d.sync += operation4.kind.eq(OperationKind.MERGE)
        with m.Elif(verdict.replay):
            m.d.sync += operation4.kind.eq(OperationKind.REPLAY)
        with m.Else():
            m.d.sync += operation4.kind.eq(OperationKind.RELEASE)
        overwrites = opens | takes
        m.d.sync += [
            valid4.eq(valid3),
            operation4.start.eq(frame3.start),
            operation4.end.eq(frame3.end),
            operation4.present.eq(header.present),
            operation4.fresh.eq(header.present & ~Mux(overwrites, 0, this.present)),
            operation4.opening.eq(overwrites),
            operation4.opcode.eq(header.opcode),
            operation4.version.eq(version),
            operation4.complete.eq(filled | verdict.take),
            delivery.up.eq(up),
            delivery.everyone.eq(changes),
            delivery.worker.eq(header.worker),
            delivery.job.eq(frame3.job),
            delivery.generation.eq(job3.generation),
            delivery.slot.eq(slot3),
            delivery.header.eq(header),
            delivery.header.version.eq(wire.VERSION),
            delivery.header.type.eq(
                Mux(sent.conflict, wire.Type.CONFLICT, Mux(up, wire.Type.DATA, wire.Type.RESULT))
            ),
            # A parent's frame has its parent's job and key.
            delivery.header.job.eq(frame3.job),
            delivery.header.key.eq(job3.key),
            delivery.header.present.eq(sent.present),
            delivery.header.operation.eq(sent.operation),
            delivery.header.opcode.eq(sent.opcode),
            delivery.header.dtype.eq(sent.dtype),
        ]
        m.d.comb += [self.o.payload.eq(operation4), self.o.valid.eq(valid4)]

        conflict4 = Signal()
        m.d.sync += [
            self.started.eq(valid3 & verdict.accept),
            self.started_job.eq(frame3.job),
            self.judged.eq(valid3 & checks3.good),
            self.cause.eq(verdict.cause),
            self.accepted_blocks.eq(Mux(valid3 & verdict.accept, frame3.blocks, 0)),
            self.completed.eq(valid3 & completed),
            conflict4.eq(held.conflict),
        ]
        m.d.comb += self.conflicted.eq(self.completed & conflict4)
        m.d.comb += self.idle.eq(~(self.i.valid | valid1 | valid2 | valid3 | valid4 | self.judged))
        return m
