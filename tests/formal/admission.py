"""Proof: each contribution is added exactly once, for any order of packets, duplicates and losses.

The admit stage and the slot state memory as they are. Frames are any frames at all, of any job.
Only this is assumed of those that bear the watched job's key and a worker's number
(`docs/protocol.md` section 6 and the end of section 7): they name a round that this worker has
reached, and none that it left 2**31 rounds ago; and a worker goes on to round r + 1 only after r
was complete. Losses are frames that never come; duplicates and delays are frames that name earlier
rounds.

Watched is any slot of any job. It is shown that the operations on it are, for each worker, one
MERGE for each round, in order and without a gap; that a round is delivered when, and only when, the
MERGE of each of the job's workers has gone before; that the first MERGE of a round overwrites the
words, and the first that has a block of a lane that block; and that a replay is of a version that
still holds its round.
"""

from types import SimpleNamespace

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Array, Assert, Cat, Cover, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import connect

from afflux_hdl.contract import wire
from afflux_hdl.engine.admit import Admit
from afflux_hdl.engine.layouts import FrameSummary, JobEntry, OperationKind, Route, WorkerEntry
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_state import SlotStateMemory, parity_of
from tests.formal import seams
from tests.formal.contracts import choose
from tests.formal.inside import Inside
from tests.formal.seams import at_most
from tests.formal.watched import choice, watching

__all__ = ["AdmissionHarness"]


class Workers:
    """The job's workers, and a ghost of what the operations have done for them.

    Attributes:
        outstanding: For each worker, the latest round that it may have sent.
        merged: For each worker, the latest round that a MERGE has had from it.
        filled: The latest round in which all are.
        complete: The latest round that was delivered. It is `filled`, or, with a parent, the
            latest that the parent's result was taken for.
        present, conflict: For each version, of the round that it holds.
        opened: Rounds opened so far: none, one, or more.
    """

    def __init__(self, p: Parameters) -> None:
        numbers = range(p.workers)
        self.outstanding = [Signal(32, init=1, name=f"outstanding_{n}") for n in numbers]
        self.merged = [Signal(32, name=f"merged_{n}") for n in numbers]
        self.filled = Signal(32, name="filled_round")
        self.complete = Signal(32, name="complete_round")
        self.present = [Signal(wire.LANES_MAX, name=f"present_{v}") for v in range(2)]
        self.conflict = [Signal(name=f"conflict_{v}") for v in range(2)]
        self.opened = Signal(2, name="opened")


class AdmissionHarness(Elaboratable):
    """See above; any number of workers up to `workers`."""

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        with watching("afflux_hdl.engine.slot_state") as memories:
            memory = SlotStateMemory(p)
            m.submodules.memory = Inside(memory, platform).fragment
        m.submodules.admit = admit = Admit(p)

        slot, job_number = AnyConst(p.slot_bits), choice(p.jobs)
        phase = Signal()
        seams.PHASE.require(m, phase)
        m.d.comb += [
            phase.eq(AnySeq(1)),
            admit.phase.eq(phase),
            admit.o_full.eq(AnySeq(1)),
            admit.replies_full.eq(AnySeq(1)),
            admit.refusals_full.eq(AnySeq(1)),
            # Whether a worker has joined, and from where: anything.
            admit.read_worker.data.as_value().eq(AnySeq(WorkerEntry(p).size)),
            memory.send.address.eq(AnySeq(p.slot_bits)),
        ]
        connect(m, admit.read_state, memory.read)
        connect(m, admit.write_state, memory.write)
        m.d.comb += admit.state_broken.eq(memory.broken)

        # Routes: any. The watched job's stays.
        route = Signal(Route)
        route_is = Signal()
        m.d.sync += route_is.eq(admit.read_route.address == job_number)
        m.d.comb += route.eq(AnySeq(data.Layout.cast(Route).size))
        with m.If(route_is):
            m.d.comb += admit.read_route.data.eq(route)
        with m.Else():
            m.d.comb += admit.read_route.data.as_value().eq(AnySeq(data.Layout.cast(Route).size))

        # Jobs: any, with slots of their own. The watched one has the watched slot.
        jobs = [Signal(JobEntry(p), name=f"job_{n}") for n in range(p.jobs)]
        job = Signal(JobEntry(p))
        size = data.Layout.cast(JobEntry(p)).size
        m.d.comb += [
            *(entry.eq(AnySeq(size)) for entry in jobs),
            *(admit.jobs[n].eq(entry) for n, entry in enumerate(jobs)),
            job.eq(admit.jobs[job_number]),
            *(ram.watched.eq(slot) for ram in memories),
        ]
        built = {"workers": p.workers, "lanes": p.lanes, "slots": p.slots}
        seams.JOBS.require(m, jobs, **built)
        kept = [entry[name] for entry in jobs for name in JobEntry(p).members if name != "started"]
        seams.JOBS_STAY.assume(m, Cat(kept), route.as_value())
        owns = (job.base <= slot) & (slot < job.base + job.count)
        choose(m, job.enabled & owns, "a slot of a job that is enabled")

        workers = Workers(p)
        self._frames(m, admit, job, route, job_number, slot, workers)
        after = self._operations(m, admit, job, job_number, slot, workers)
        kept_state = memories[0].content
        m.d.comb += Assert(kept_state.parity == parity_of(kept_state.state), "the state is whole")
        self._tie(m, kept_state.state, memories[1].content, job, workers, after)
        return m

    def _frames(
        self,
        m: Module,
        admit: Admit,
        job: data.View,
        route: data.View,
        job_number: Value,
        slot: Value,
        workers: Workers,
    ) -> None:
        """Any frames, but for what a worker of the job never sends."""
        p = self._parameters
        frame = Signal(FrameSummary(p))
        header = frame.header
        m.d.comb += [
            frame.eq(AnySeq(data.Layout.cast(FrameSummary(p)).size)),
            admit.i.payload.eq(frame),
            admit.i.valid.eq(AnySeq(1)),
        ]
        seams.SUMMARY.require(m, admit.i)
        outstanding = Array(workers.outstanding)[header.worker[: p.worker_bits]]
        on_slot = (
            frame.good
            & frame.job_built
            & (frame.job == job_number)
            & (header.slot < job.count)
            & ((job.base + header.slot)[: p.slot_bits] == slot)
        )
        from_worker = (
            on_slot
            & ~frame.from_parent
            & (header.type != wire.Type.JOIN)
            & (header.key == job.key)
            & (header.worker < job.workers)
        )
        seams.WORKERS_ROUNDS.assume(m, from_worker, header.round, outstanding)
        # The parent keeps the same rules: it gives the result of a round of which it has the sum.
        from_parent = (
            on_slot
            & frame.from_parent
            & (header.type != wire.Type.JOINED)
            & (header.job == route.parent_job)
            & (header.key == route.parent_key)
            & (header.worker == route.parent_worker)
            & (frame.source.address == route.parent.address)
            & (frame.source.port == route.parent.port)
        )
        seams.PARENTS_ROUNDS.assume(m, from_parent, header.round, workers.filled)
        for own in workers.outstanding:
            # The result may arrive at any time after it was delivered.
            with m.If(AnySeq(1) & at_most(own, workers.complete)):
                m.d.sync += own.eq(own + 1)

    def _operations(
        self,
        m: Module,
        admit: Admit,
        job: data.View,
        job_number: Value,
        slot: Value,
        workers: Workers,
    ) -> Workers:
        """Keep the ghost, and compare each operation on the watched slot with it.

        Returns:
            The ghost with this cycle's operation in it.
        """
        p = self._parameters
        operation = admit.o.payload
        delivery = operation.delivery
        round_ = delivery.header.round
        version = round_[0]
        on_slot = admit.o.valid & (delivery.slot == slot)
        merges = on_slot & (operation.kind == OperationKind.MERGE)
        # A contribution, or the parent's result, which nothing but a child's contribution is like.
        takes = merges & job.parent & ~delivery.up
        adds = merges & ~takes
        replays = on_slot & (operation.kind == OperationKind.REPLAY)
        after = Workers(p)
        for name in ("outstanding", "merged", "present", "conflict"):
            for now, then in zip(getattr(workers, name), getattr(after, name), strict=True):
                m.d.comb += then.eq(now)
        for name in ("filled", "complete", "opened"):
            m.d.comb += getattr(after, name).eq(getattr(workers, name))
            m.d.sync += getattr(workers, name).eq(getattr(after, name))
        for name in ("merged", "present", "conflict"):
            for now, then in zip(getattr(workers, name), getattr(after, name), strict=True):
                m.d.sync += now.eq(then)

        # Of any slot; parts that are not about the watched one are released.
        own = SimpleNamespace(
            payload=operation,
            valid=admit.o.valid & (on_slot | (operation.kind == OperationKind.ORDER)),
        )
        seams.OPERATION.guarantee(m, own, lanes=p.lanes)
        seams.REPLY.guarantee(m, admit.replies)
        taking_part = [n < job.workers for n in range(p.workers)]
        before = Cat(
            part & (merged == round_)
            for part, merged in zip(taking_part, workers.merged, strict=True)
        )
        everyone = Cat(
            ~part | (merged == round_)
            for part, merged in zip(taking_part, after.merged, strict=True)
        ).all()
        opening = ~before.any()
        held = Mux(version, workers.present[1], workers.present[0])
        with m.If(merges | replays):
            m.d.comb += [
                Assert(delivery.job == job_number, "no other job touches the slot"),
                Assert(delivery.generation == job.generation),
                Assert(operation.version == version),
            ]
        with m.If(adds):
            m.d.comb += Assert(delivery.worker < job.workers)
            for n in range(p.workers):
                with m.If(delivery.worker == n):
                    m.d.comb += [
                        Assert(
                            round_ == (workers.merged[n] + 1)[:32], "once for each round, in order"
                        ),
                        after.merged[n].eq(round_),
                    ]
            m.d.comb += [
                Assert(operation.opening == opening, "the first overwrites the words"),
                Assert(
                    operation.fresh == (operation.present & ~Mux(opening, 0, held)),
                    "the first of a lane overwrites the block",
                ),
                Assert(operation.complete == everyone, "complete when all are in, not before"),
                Assert(delivery.everyone),
                Assert(delivery.up == job.parent, "to the parent, or to the workers"),
            ]
            for own, part in zip(workers.outstanding, taking_part, strict=True):
                # This version held round r - 2.
                needed = part & at_most(own, (round_ - 2)[:32])
                m.d.comb += Assert(~(opening & needed), "a version is taken while it is needed")
            with m.If(opening & ~workers.opened[1]):
                m.d.comb += after.opened.eq(workers.opened + 1)
            with m.If(opening):
                m.d.comb += Assert(round_ == (workers.complete + 1)[:32], "opened too early")
            with m.If(operation.complete):
                m.d.comb += after.filled.eq(round_)
                with m.If(~job.parent):
                    m.d.comb += after.complete.eq(round_)
        with m.If(takes):
            m.d.comb += [
                Assert(round_ == workers.filled, "of the round whose sum has gone up"),
                Assert(round_ == (workers.complete + 1)[:32], "once for each round, in order"),
                Assert(operation.opening & (operation.fresh == operation.present), "overwrites"),
                Assert(operation.complete & delivery.everyone),
                after.complete.eq(round_),
            ]
        for v in range(2):
            with m.If(merges & (version == v)):
                m.d.comb += [
                    after.present[v].eq(
                        Mux(opening | takes, 0, workers.present[v]) | operation.present
                    ),
                    Assert(delivery.header.present == after.present[v]),
                ]
        overwritten = Cat(merged == (round_ + 2)[:32] for merged in workers.merged)
        parts = Cat(taking_part)
        waiting = workers.filled != workers.complete
        with m.If(replays):
            m.d.comb += [Assert(delivery.header.present == held), Assert(~delivery.everyone)]
        with m.If(replays & delivery.up):
            m.d.comb += Assert((round_ == workers.filled) & waiting, "a sum that the parent needs")
        with m.If(replays & ~delivery.up):
            m.d.comb += [
                Assert(delivery.worker < job.workers),
                Assert(
                    (round_ == workers.complete)
                    | ((round_ + 1)[:32] == workers.complete) & ~(overwritten & parts).any(),
                    "a replay is of what a version holds",
                ),
            ]
        several = job.workers > 1
        m.d.comb += [
            Cover(adds & opening & (workers.opened == 1) & several, "the next round opens"),
            Cover(replays & ~delivery.up & several, "a result is sent again"),
            Cover(replays & delivery.up & several, "a partial sum is sent again"),
            Cover(takes & several, "the parent's result is taken"),
        ]
        return after

    def _tie(
        self,
        m: Module,
        state: data.View,
        send_round: Signal,
        job: data.View,
        workers: Workers,
        after: Workers,
    ) -> None:
        """Say what the slot's state has to do with the ghost."""
        p = self._parameters
        full = state.left == 0
        seen_count = sum(state.seen)
        m.d.comb += [
            Assert(send_round == state.round, "the transmit side's copy of R"),
            Assert((state.seen >> job.workers) == 0),
            Assert(after.filled == Mux(full, state.round, (state.round - 1)[:32])),
            Assert(~state.waiting | (full & job.parent)),
            Assert(
                after.complete == Mux(full & ~state.waiting, state.round, (state.round - 1)[:32])
            ),
            Assert(after.opened != 3),
        ]
        with m.If(after.opened != 0):
            m.d.comb += [
                Assert(state.left == job.workers - seen_count),
                Assert(state.seen != 0, "an open round has a contribution"),
            ]
        with m.Else():
            m.d.comb += Assert(full & (state.seen == 0) & ~state.waiting)
        for n in range(p.workers):
            own, merged = workers.outstanding[n], after.merged[n]
            is_in = state.seen[n] | (after.opened == 0)
            with m.If(n < job.workers):
                m.d.comb += [
                    Assert(merged == Mux(is_in, state.round, (state.round - 1)[:32])),
                    Assert(
                        (own == merged)
                        | ((own == (merged + 1)[:32]) & at_most(merged, after.complete))
                    ),
                ]
        for v in range(2):
            current = state.round[0] == v
            m.d.comb += Assert(
                state.versions[v].held == (after.opened > Mux(current, 0, 1)), "held"
            )
            with m.If(state.versions[v].held):
                m.d.comb += Assert(state.versions[v].present == after.present[v])
                m.d.comb += Assert((after.present[v] >> p.lanes) == 0)
