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
from afflux_hdl.engine.admit_cycles import Cycle1, Cycle2, Cycle3, Decision
from afflux_hdl.engine.admit_orders import order
from afflux_hdl.engine.answers import compose, refusal_limit
from afflux_hdl.engine.arriving_forms import base_dtype
from afflux_hdl.engine.layouts import (
    Cause,
    FrameSummary,
    JobEntry,
    Reply,
    Route,
    SlotOperation,
    WorkerAddress,
    WorkerEntry,
)
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_state import SlotState, VersionState
from afflux_hdl.engine.verdict import Screen, Screened, Verdict
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.packet_stream import Peer

__all__ = ["Admit"]


class Admit(wiring.Component):
    """Decides what becomes of frames.

    Latency: 4 cycles from a summary on `i` to its operation on `o`, one more at the wrong phase.
    Throughput: one frame in two cycles, taken when `phase` is 0; one that occupies the receive
    buffer, and no other comes here, takes at least two to arrive. `i` waits while `o_full`. A reply
    is dropped and counted if it finds `replies_full`; its worker asks again. Whom a refusal goes to
    nobody has verified: it is dropped if it finds `refusals_full` or goes beyond the rate of
    `answers.refusal_limit`.

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
        self.cycle1, self.cycle2, self.cycle3 = Cycle1(p), Cycle2(p), Cycle3(p)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._look_up(m)
        self._compare(m)
        self._screen(m)
        self.decision = decision = self._decide(m)
        self._reply(m, decision)
        self.operation, valid4 = order(m, self._parameters, self.cycle3, decision)
        m.d.comb += [self.o.payload.eq(self.operation), self.o.valid.eq(valid4)]
        self._count(m, decision)
        return m

    def _look_up(self, m: Module) -> None:
        """Cycle 0: take a frame, look its job, worker and route up."""
        then = self.cycle1
        take = Signal()
        frame = self.i.payload
        m.d.comb += [
            take.eq(self.i.valid & ~self.phase & ~self.o_full),
            self.i.ready.eq(~self.phase & ~self.o_full),
            self.read_worker.address.job.eq(frame.job),
            self.read_worker.address.worker.eq(frame.header.worker),
            self.read_route.address.eq(frame.job),
        ]
        m.d.sync += [then.valid.eq(take), then.frame.eq(frame), then.job.eq(self.jobs[frame.job])]

    def _compare(self, m: Module) -> None:
        """Cycle 1: compare with the tables' answers, address the slot."""
        p = self._parameters
        now, then = self.cycle1, self.cycle2
        slot1 = Signal(p.slot_bits)
        m.d.comb += [
            slot1.eq(now.job.base + now.frame.header.slot),
            self.read_state.address.eq(slot1),
        ]
        header, source = now.frame.header, now.frame.source
        route, entry = self.read_route.data, self.read_worker.data
        from_parent = now.frame.from_parent
        # Long comparisons are made in parts, which the next cycle puts together.
        key = Mux(from_parent, route.parent_key, now.job.key)
        expected = data.View(
            Peer(),
            Mux(
                from_parent,
                route.parent.as_value(),
                # By which port a frame comes does not matter.
                entry.peer.as_value()[: Peer().size],
            ),
        )
        # The job's entry shows a contribution that was accepted at least two frames before; that of
        # the frame before, which is in cycle 3 now, comes from there.
        m.d.sync += [
            *(
                then.key[n].eq(header.key.word_select(n, 16) == key.word_select(n, 16))
                for n in range(4)
            ),
            then.address[0].eq(from_parent | entry.joined),
            then.address[1].eq(source.address[:16] == expected.address[:16]),
            then.address[2].eq(source.address[16:] == expected.address[16:]),
            then.address[3].eq(source.port == expected.port),
            then.started.eq(self.jobs[now.frame.job].started),
            then.follows.eq(self.cycle3.valid & (self.cycle3.frame.job == now.frame.job)),
        ]
        m.d.sync += [
            then.valid.eq(now.valid),
            then.frame.eq(now.frame),
            then.job.eq(now.job),
            then.slot.eq(slot1),
            then.group.eq(route.group),
            then.checks.good.eq(now.frame.good),
            then.checks.refused_version.eq(now.frame.refused_version),
            then.checks.checksum.eq(now.frame.checksum),
            then.checks.from_parent.eq(from_parent),
            then.checks.job.eq(
                now.frame.job_built
                & now.job.enabled
                & (~from_parent | (now.job.parent & (header.job == route.parent_job)))
            ),
            then.checks.worker.eq(
                Mux(
                    from_parent,
                    header.worker == route.parent_worker,
                    header.worker < now.job.workers,
                )
            ),
            then.checks.slot.eq(header.slot < now.job.count),
            then.checks.lanes.eq((header.present & ~now.job.lane_mask) == 0),
            then.checks.empty.eq(header.present == 0),
        ]
        # Rounds next to the frame's, so that cycle 2 only has to compare.
        m.d.sync += [then.before.eq(header.round - 1), then.after.eq(header.round + 1)]

    def _screen(self, m: Module) -> None:
        """Cycle 2: the slot's state is here; where in it does the frame's round lie?"""
        p = self._parameters
        now, then = self.cycle2, self.cycle3
        header, state = now.frame.header, self.read_state.data
        same2 = Signal()
        m.d.comb += same2.eq(state.round == header.round)
        # Decisions that need no slot state fall here: a JOIN must be in the table when the next
        # frame's worker is looked up.
        m.submodules.screen = screen = Screen()
        m.d.comb += [
            screen.type.eq(header.type),
            screen.checks.eq(now.checks),
            screen.checks.key.eq(now.key.all()),
            screen.checks.address.eq(now.address.all()),
            screen.checks.settled.eq(
                ~now.job.moves
                & (now.started | (now.follows & self.started))
                & now.address[0]
                & ~now.address[1:].all()
            ),
            self.write_worker.enable.eq(now.valid & screen.o.join),
            self.write_worker.address.job.eq(now.frame.job),
            self.write_worker.address.worker.eq(header.worker),
            self.write_worker.data.joined.eq(1),
            self.write_worker.data.peer.eq(now.frame.source),
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
        held = state.versions[header.round[0]]
        m.d.sync += [
            then.valid.eq(now.valid),
            then.checks.eq(screen.checks),
            then.screened.eq(screened2),
            then.frame.eq(now.frame),
            then.job.eq(now.job),
            then.slot.eq(now.slot),
            then.group.eq(now.group),
            then.state.eq(state),
            then.borrow.eq(header.round[:16] < state.round[:16]),
            then.differs[0].eq(held.operation[:8] != header.operation[:8]),
            then.differs[1].eq(held.operation[8:] != header.operation[8:]),
            then.differs[2].eq(
                (held.opcode != header.opcode) | (held.dtype != base_dtype(now.frame))
            ),
            then.left_opened.eq(now.job.workers - 1),
            then.left_joined.eq(state.left - 1),
            then.held.eq(held),
            then.own.eq(1 << header.worker[: p.worker_bits]),
            then.one_worker.eq(now.job.workers == 1),
            then.one_left.eq(state.left == 1),
            then.position.next.eq(state.round == now.before),
            then.position.same.eq(same2),
            then.position.previous.eq(state.round == now.after),
            then.position.held.eq(held.held),
            then.position.full.eq(state.left == 0),
            then.position.waiting.eq(state.waiting),
            then.position.own_seen.eq(state.seen.bit_select(header.worker[: p.worker_bits], 1)),
        ]

    def _decide(self, m: Module) -> Decision:
        """Cycle 3: decide, and write the state back."""
        p = self._parameters
        now = self.cycle3
        m.submodules.verdict = verdict = Verdict()
        header = now.frame.header
        version = header.round[0]
        # The lower halves of the rounds have been compared.
        distance = Signal(16)
        m.d.comb += [
            distance.eq(header.round[16:] - now.state.round[16:] - now.borrow),
            verdict.screened.eq(now.screened),
            verdict.position.eq(now.position),
            verdict.position.early.eq(~distance[-1] & ~now.position.same),
        ]
        # For what is accepted or taken, these two equal the verdict, but are known sooner.
        takes, opens = Signal(), Signal()
        is_conflict, filled, completed = Signal(), Signal(), Signal()
        left = Signal(p.count_bits)
        held = Signal(VersionState(p))
        after = Signal(SlotState(p))
        m.d.comb += [
            is_conflict.eq(header.type == wire.Type.CONFLICT),
            takes.eq(now.screened.result),
            opens.eq(~takes & now.position.next),
            left.eq(Mux(opens, now.left_opened, now.left_joined)),
            filled.eq(verdict.accept & Mux(opens, now.one_worker, now.one_left)),
            completed.eq((filled & ~now.job.parent) | verdict.take),
            after.eq(now.state),
            after.round.eq(header.round),
            after.waiting.eq(filled & now.job.parent),
            held.eq(now.held),
        ]
        with m.If(~takes):
            m.d.comb += [
                after.seen.eq(Mux(opens, 0, now.state.seen) | now.own),
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
                held.dtype.eq(base_dtype(now.frame)),
                held.conflict.eq(is_conflict),
            ]
        with m.Else():
            m.d.comb += [
                held.present.eq(now.held.present | header.present),
                held.conflict.eq(now.held.conflict | now.differs.any() | is_conflict),
            ]
        m.d.comb += held.in_all.eq(header.present & Mux(opens, -1, now.held.in_all))
        for number in range(2):
            with m.If(version == number):
                m.d.comb += after.versions[number].eq(held)
        m.d.comb += [
            self.write_state.enable.eq(now.valid & (verdict.accept | verdict.take)),
            self.write_state.address.eq(now.slot),
            self.write_state.data.eq(after),
            self.parent_joined.eq(now.valid & now.screened.parent_joined),
            self.parent_joined_job.eq(now.frame.job),
        ]
        if p.ports > 1:
            m.d.comb += self.parent_ports.eq(now.frame.source.net_ports)
        return Decision(verdict, opens | takes, filled, completed, held)

    def _reply(self, m: Module, decision: Decision) -> None:
        """Cycle 4: the reply, if any. Its words are those of section 5.4."""
        p = self._parameters
        now, verdict = self.cycle3, decision.verdict
        wants_reply, fits = Signal(), Signal()
        refused = now.screened.refusal != 0
        m.submodules.limit = limit = refusal_limit()
        m.d.comb += [
            wants_reply.eq((verdict.answer != 0) | refused),
            fits.eq(Mux(refused, ~self.refusals_full & limit.ready, ~self.replies_full)),
        ]
        if p.ram_output_register:
            # Frames are two cycles apart, so the next one finds this one counted all the same.
            m.d.sync += limit.take.eq(now.valid & refused & fits)
        else:
            m.d.comb += limit.take.eq(now.valid & refused & fits)
        reply4 = Signal(Reply(p))
        reply_valid4 = Signal()
        m.d.sync += [
            reply_valid4.eq(now.valid & wants_reply & fits),
            self.reply_dropped.eq(now.valid & wants_reply & ~refused & ~fits),
            self.refusal_dropped.eq(now.valid & refused & ~fits),
        ]
        compose(m, reply4, now, verdict)
        m.d.comb += [self.replies.payload.eq(reply4), self.replies.valid.eq(reply_valid4)]

    def _count(self, m: Module, decision: Decision) -> None:
        """Cycle 4: what the counters and the job table are told."""
        now, verdict = self.cycle3, decision.verdict
        conflict4 = Signal()
        m.d.sync += [
            self.started.eq(now.valid & verdict.accept),
            self.started_job.eq(now.frame.job),
            self.judged.eq(now.valid & now.checks.good),
            self.cause.eq(verdict.cause),
            self.accepted_blocks.eq(Mux(now.valid & verdict.accept, now.frame.blocks, 0)),
            self.completed.eq(now.valid & decision.completed),
            conflict4.eq(decision.held.conflict),
        ]
        m.d.comb += self.conflicted.eq(self.completed & conflict4)
        m.d.comb += self.idle.eq(
            ~(
                self.i.valid
                | self.cycle1.valid
                | self.cycle2.valid
                | now.valid
                | self.o.valid
                | self.judged
            )
        )
