"""Admit stage: decides about each frame by the job, the worker and the state of its slot.

::

    i ─► job table ─► worker table ─► slot state ─► decision ─► o (SlotOperation)
                                          ▲            │  └───► replies
                                          └────────────┘

The decision is that of ``docs/protocol.md`` sections 5.2 (the checks that need a table) and 5.3.
The slot's state changes here, at once; words and blocks follow in the merge stage, in order.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl import wire
from afflux_hdl.layouts import (
    Cause,
    FrameSummary,
    JobEntry,
    OperationKind,
    Reply,
    SlotOperation,
    WorkerEntry,
)
from afflux_hdl.parameters import Parameters
from afflux_hdl.slot_state import SlotState

__all__ = ["Admit"]


class Admit(wiring.Component):
    """Decides about frames.

    Latency: 4 cycles from a summary on ``i`` to its operation on ``o``. Throughput: one frame in
    two cycles, taken when ``phase`` is 0; a frame that holds room in the buffer takes at least two
    cycles to arrive. ``i`` waits while ``o_full``. A reply that finds ``replies_full`` (a refusal:
    ``refusals_full``) is dropped and counted; its worker asks again.

    A slot's state is read one cycle after a frame is taken and written one cycle later, so the
    next frame, at least two cycles behind, reads it as written: no bypass.

    Members:
        phase: Alternates from cycle to cycle.
        i: Frames.
        o: Operations for the merge stage, in order of arrival; ``ready`` is taken for granted.
        o_full: The queue behind ``o`` has no room for the frames that are under way.
        jobs: The job table.
        check_job, check_worker, checked: Worker table.
        join, join_job, join_worker, join_entry: Writes the worker table.
        read_slot, state, write, write_slot, write_state: Slot state.
        replies, replies_full, refusals_full: Short answers; ``ready`` is taken for granted.
        judged, cause: A frame is counted in this cycle, and how.
        accepted_blocks: Number of blocks of the contribution accepted in this cycle.
        completed, conflicted: This frame completes a round; as a conflict.
        reply_dropped: A reply is dropped in this cycle.
        idle: No frame is on its way.
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
                "check_job": Out(p.job_bits),
                "check_worker": Out(p.worker_bits),
                "checked": In(WorkerEntry),
                "join": Out(1),
                "join_job": Out(p.job_bits),
                "join_worker": Out(p.worker_bits),
                "join_entry": Out(WorkerEntry),
                "read_slot": Out(p.slot_bits),
                "state": In(state),
                "write": Out(1),
                "write_slot": Out(p.slot_bits),
                "write_state": Out(state),
                "replies": Out(stream.Signature(Reply, always_ready=True)),
                "replies_full": In(1),
                "refusals_full": In(1),
                "judged": Out(1),
                "cause": Out(Cause),
                "accepted_blocks": Out(5),
                "completed": Out(1),
                "conflicted": Out(1),
                "reply_dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters

        # Stage 0: take a frame, look its job and worker up.
        take = Signal()
        frame = self.i.payload
        m.d.comb += [
            take.eq(self.i.valid & ~self.phase & ~self.o_full),
            self.i.ready.eq(~self.phase & ~self.o_full),
            self.check_job.eq(frame.header.job),
            self.check_worker.eq(frame.header.worker),
        ]
        valid1 = Signal()
        frame1 = Signal(FrameSummary(p))
        job1 = Signal(JobEntry(p))
        job_known1 = Signal()
        m.d.sync += [
            valid1.eq(take),
            frame1.eq(frame),
            job1.eq(self.jobs[frame.header.job[: p.job_bits]]),
            job_known1.eq(frame.header.job < p.jobs),
        ]

        # Stage 1: compare with the tables' answers, address the slot.
        slot1 = Signal(p.slot_bits)
        m.d.comb += [
            slot1.eq(job1.base + frame1.header.slot),
            self.read_slot.eq(slot1),
        ]
        checks2 = Signal(
            data.StructLayout(
                {"job": 1, "key": 1, "worker": 1, "address": 1, "slot": 1, "lanes": 1, "empty": 1}
            )
        )
        valid2 = Signal()
        frame2 = Signal.like(frame1)
        job2 = Signal.like(job1)
        slot2 = Signal.like(slot1)
        m.d.sync += [
            valid2.eq(valid1),
            frame2.eq(frame1),
            job2.eq(job1),
            slot2.eq(slot1),
            checks2.job.eq(job_known1 & job1.enabled),
            checks2.key.eq(frame1.header.key == job1.key),
            checks2.worker.eq(frame1.header.worker < job1.workers),
            checks2.address.eq(
                self.checked.joined
                & (self.checked.peer.address == frame1.source.address)
                & (self.checked.peer.port == frame1.source.port)
            ),
            checks2.slot.eq(frame1.header.slot < job1.count),
            checks2.lanes.eq((frame1.header.present & ~job1.lane_mask) == 0),
            checks2.empty.eq(frame1.header.present == 0),
        ]
        # Rounds next to the frame's, so that stage 2 only has to compare.
        before2, after2 = Signal(32), Signal(32)
        m.d.sync += [
            before2.eq(frame1.header.round - 1),
            after2.eq(frame1.header.round + 1),
        ]

        # Stage 2: the slot's state is here; decide and write it back.
        header = frame2.header
        state = self.state
        opens, current, replayable, early = Signal(), Signal(), Signal(), Signal()
        full, own_seen, same = Signal(), Signal(), Signal()
        version = Signal()
        distance = Signal(32)
        this = state.versions[version]
        m.d.comb += [
            opens.eq(state.round == before2),
            same.eq(state.round == header.round),
            current.eq(same & this.held),
            replayable.eq((state.round == after2) & this.held),
            distance.eq(header.round - state.round),
            early.eq(~distance[31] & ~same),
            full.eq(state.left == 0),
            own_seen.eq(state.seen.bit_select(header.worker[: p.worker_bits], 1)),
            version.eq(header.round[0]),
        ]
        own = Signal(p.workers)
        m.d.comb += own.eq(1 << header.worker[: p.worker_bits])

        kind = Signal(OperationKind)
        cause = Signal(Cause)
        answer = Signal(wire.Type)
        counted = Signal()
        replay = Signal()
        seen_words = Signal(64)
        refusal = Signal(wire.Refusal)
        accept, opening = Signal(), Signal()
        is_join, is_probe = Signal(), Signal()
        m.d.comb += [
            is_join.eq(header.type == wire.Type.JOIN),
            is_probe.eq(header.type == wire.Type.PROBE),
            counted.eq(valid2 & frame2.good),
        ]

        with m.If(~frame2.good):
            with m.If(frame2.refused_version):
                m.d.comb += refusal.eq(wire.Refusal.VERSION)
        with m.Elif(~checks2.job):
            m.d.comb += [cause.eq(Cause.BAD_JOB), refusal.eq(Mux(is_join, wire.Refusal.JOB, 0))]
        with m.Elif(~checks2.key):
            m.d.comb += [cause.eq(Cause.BAD_KEY), refusal.eq(Mux(is_join, wire.Refusal.KEY, 0))]
        with m.Elif(~checks2.worker):
            m.d.comb += [
                cause.eq(Cause.BAD_WORKER),
                refusal.eq(Mux(is_join, wire.Refusal.WORKER, 0)),
            ]
        with m.Elif(is_join):
            with m.If(~checks2.empty):
                m.d.comb += cause.eq(Cause.BAD_PRESENT)
            with m.Else():
                m.d.comb += [
                    cause.eq(Cause.JOINS),
                    answer.eq(wire.Type.JOINED),
                    self.join.eq(valid2),
                ]
        with m.Elif(~checks2.address):
            m.d.comb += cause.eq(Cause.BAD_ADDRESS)
        with m.Elif(~checks2.slot):
            m.d.comb += cause.eq(Cause.BAD_SLOT)
        with m.Elif(~checks2.lanes | (is_probe & ~checks2.empty)):
            m.d.comb += cause.eq(Cause.BAD_PRESENT)
        with m.Elif(is_probe):
            m.d.comb += cause.eq(Cause.PROBES)
            with m.If(replayable | (current & full)):
                m.d.comb += replay.eq(1)
            with m.Elif(current):
                m.d.comb += [answer.eq(wire.Type.MISSING), seen_words.eq(state.seen)]
            with m.Elif(opens & full):
                m.d.comb += answer.eq(wire.Type.MISSING)
            with m.Else():
                m.d.comb += cause.eq(Mux(early, Cause.PREMATURE, Cause.STALE))
        with m.Elif((opens & full) | (current & ~own_seen)):
            m.d.comb += [cause.eq(Cause.ACCEPTED), accept.eq(1), opening.eq(opens)]
        with m.Elif(current):
            m.d.comb += [cause.eq(Cause.DUPLICATES), replay.eq(full)]
        with m.Elif(replayable):
            m.d.comb += [cause.eq(Cause.DUPLICATES), replay.eq(1)]
        with m.Else():
            m.d.comb += cause.eq(Mux(early, Cause.PREMATURE, Cause.STALE))

        # The new state, if this is a contribution.
        left = Signal(p.count_bits)
        after = Signal(SlotState(p))
        held = after.versions[version]
        differs = Signal()
        m.d.comb += [
            left.eq(Mux(opening, job2.workers, state.left) - 1),
            differs.eq(
                (this.operation != header.operation)
                | (this.opcode != header.opcode)
                | (this.dtype != header.dtype)
            ),
            after.eq(state),
            after.round.eq(header.round),
            after.seen.eq(Mux(opening, 0, state.seen) | own),
            after.left.eq(left),
        ]
        for number in range(2):
            with m.If(version == number):
                m.d.comb += after.versions[number].present.eq(
                    Mux(opening, 0, state.versions[number].present) | header.present
                )
                with m.If(opening):
                    m.d.comb += [
                        after.versions[number].held.eq(1),
                        after.versions[number].operation.eq(header.operation),
                        after.versions[number].opcode.eq(header.opcode),
                        after.versions[number].dtype.eq(header.dtype),
                        after.versions[number].conflict.eq(0),
                    ]
                with m.Elif(differs):
                    m.d.comb += after.versions[number].conflict.eq(1)
        complete = Signal()
        m.d.comb += [
            complete.eq(accept & (left == 0)),
            self.write.eq(valid2 & accept),
            self.write_slot.eq(slot2),
            self.write_state.eq(after),
            self.join_job.eq(header.job),
            self.join_worker.eq(header.worker),
            self.join_entry.joined.eq(1),
            self.join_entry.peer.eq(frame2.source),
        ]

        # The reply, if any. Its words are those of section 5.4.
        wants_reply, fits = Signal(), Signal()
        m.d.comb += [
            wants_reply.eq((answer != 0) | (refusal != 0)),
            fits.eq(Mux(refusal != 0, ~self.refusals_full, ~self.replies_full)),
        ]
        reply3 = Signal(Reply)
        reply_valid3 = Signal()
        m.d.sync += [
            reply_valid3.eq(valid2 & wants_reply & fits),
            self.reply_dropped.eq(valid2 & wants_reply & ~fits),
            reply3.peer.eq(frame2.source),
            reply3.header.eq(header),
            reply3.header.version.eq(wire.VERSION),
            reply3.header.type.eq(Mux(refusal != 0, wire.Type.REFUSED, answer)),
            reply3.header.present.eq(0),
        ]
        with m.If(refusal != 0):
            m.d.sync += [
                reply3.words[0].eq(refusal),
                reply3.words[1].eq(wire.VERSION),
                reply3.words[2].eq(0),
                reply3.words[3].eq(0),
            ]
        with m.Elif(is_join):
            m.d.sync += [
                reply3.words[0].eq(job2.workers),
                reply3.words[1].eq(job2.lanes),
                reply3.words[2].eq(job2.count),
                reply3.words[3].eq(job2.credit),
            ]
        with m.Else():
            m.d.sync += [
                reply3.words[0].eq(seen_words[:32]),
                reply3.words[1].eq(seen_words[32:]),
                reply3.words[2].eq(state.round),
                reply3.words[3].eq(0),
            ]
        m.d.comb += [self.replies.payload.eq(reply3), self.replies.valid.eq(reply_valid3)]

        # The operation.
        with m.If(accept):
            m.d.comb += kind.eq(OperationKind.MERGE)
        with m.Elif(replay):
            m.d.comb += kind.eq(OperationKind.REPLAY)
        with m.Elif(wants_reply & fits):
            m.d.comb += kind.eq(OperationKind.REPLY)
        valid3 = Signal()
        operation3 = Signal(SlotOperation(p))
        result = Mux(accept, held.as_value(), this.as_value())
        sent = data.View(held.shape(), result)
        delivery = operation3.delivery
        m.d.sync += [
            valid3.eq(valid2),
            operation3.kind.eq(kind),
            operation3.start.eq(frame2.start),
            operation3.end.eq(frame2.end),
            operation3.present.eq(header.present),
            operation3.fresh.eq(header.present & ~Mux(opening, 0, this.present)),
            operation3.opening.eq(opening),
            operation3.opcode.eq(header.opcode),
            operation3.version.eq(version),
            operation3.complete.eq(complete),
            delivery.reply.eq(wants_reply),
            delivery.everyone.eq(accept),
            delivery.worker.eq(header.worker),
            delivery.job.eq(header.job),
            delivery.generation.eq(job2.generation),
            delivery.slot.eq(slot2),
            delivery.header.eq(header),
            delivery.header.version.eq(wire.VERSION),
            delivery.header.type.eq(Mux(sent.conflict, wire.Type.CONFLICT, wire.Type.RESULT)),
            delivery.header.present.eq(sent.present),
            delivery.header.operation.eq(sent.operation),
            delivery.header.opcode.eq(sent.opcode),
            delivery.header.dtype.eq(sent.dtype),
        ]
        m.d.comb += [self.o.payload.eq(operation3), self.o.valid.eq(valid3)]

        m.d.sync += [
            self.judged.eq(counted),
            self.cause.eq(cause),
            self.accepted_blocks.eq(Mux(valid2 & accept, frame2.blocks, 0)),
            self.completed.eq(valid2 & complete),
            self.conflicted.eq(valid2 & complete & held.conflict),
        ]
        m.d.comb += self.idle.eq(~(self.i.valid | valid1 | valid2 | valid3 | self.judged))
        return m
