"""Delivery queue: results that wait to be sent, in queues by job, and whose turn it is.

::

    cycle   0        1                         phase 1       phase 0
    i ─► queued  ─► write at the ring's ─► ... choice of ─► entry, ─► o (Dispatch)
         already?   tail                       the job,      receiver
                                               ring's head

Each job has two rings in one memory. Its results have two entries for each of its slots, as many as
the job can have: a bit for each slot and version keeps a result from being queued twice. Its
replays, and a JOIN to its parent, have a few. So no job takes another one's space, and a fence of
one job empties two rings and concerns nobody else.

Pointers and bits are memories that nothing resets: a fence, which comes before every create,
writes the pointers of its job, and the create's walk over its slots clears the bits.

Proved: `tests/formal/stage_streams.py`. Tested: `tests/sim/test_engine_queues.py`,
`tests/sim/test_engine_floods.py`, `tests/sim/test_engine_isolation.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.engine.layouts import FORMS, Delivery, Dispatch, JobEntry
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.rings import Rings
from afflux_hdl.engine.scheduler import Scheduler

__all__ = ["REPLAYS_PER_JOB", "REPLIES", "DeliveryQueue", "ring_entries_max"]

REPLAYS_PER_JOB = 8
"""Replays of a job that may be queued; further ones are dropped, and asked for again."""

REPLIES = 16
"""Short answers that may be queued."""

CLOSING_STEPS = 4
"""Steps of two cycles from a fence to the cycle in which every frame that was dispatched before it
is among the frame orders."""


_KEPT = ("join", "up", "worker", "generation", "slot", "header", *FORMS)
"""The queued fields of a delivery; the rest its ring says."""


def _entry(parameters: Parameters) -> data.StructLayout:
    """Return the layout of an entry."""
    delivery = Delivery(parameters).members
    return data.StructLayout(
        {"blocks": parameters.units_bits, **{name: delivery[name] for name in _KEPT}}
    )


def ring_entries_max(parameters: Parameters) -> int:
    """Return how much the longest ring can hold: results of one job, or what it asked again for."""
    return max(2 * parameters.slots, REPLAYS_PER_JOB)


class DeliveryQueue(wiring.Component):
    """Queues deliveries by job, and dispatches them frame by frame.

    Jobs send in turn (`scheduler.Scheduler`), each as many bytes as the others; the workers of a
    delivery to all are frames like any other. Short answers are one class more, with one answer a
    turn. Within a job results and replays alternate, each kind in its order.

    A frame at the head of its job's queue, in a build of J jobs and L lanes, waits for no more
    than (J - 1)·(2·Q - 1) + 1 units of 128 bytes, Q = 1 + 4·L being those of the largest frame,
    which has partial sums, behind the frames for which there are orders already. With 8 jobs and 16
    lanes that is 904 units. A unit is two beats of 512 bits and each frame has a beat more, its
    seal: at most Q in a turn, so that the 904 units are 2,264 beats at most.

    Latency: 3 cycles. Throughput: a delivery in two cycles in, a
    frame in two cycles out. `i` has no back-pressure: a replay, or a partial sum that goes up
    again, is dropped if the same result is queued for all workers or its job has `REPLAYS_PER_JOB`
    queued. A second result for a slot and version that is still queued is dropped too; probes
    recover it. Only a worker that goes on without its result can cause that.

    Members:
        phase: Alternates from cycle to cycle. `i` comes when it is 1, `o` when it is 0.
        i: Deliveries from the merge stage.
        i_replay: With `i`: the delivery is a replay.
        jobs: The job table.
        forget, forgotten: No result of this slot is queued: forget that one was. At most in every
            other cycle, when `phase` is 0.
        answers: There is a short answer to be sent.
        room: A frame may be dispatched.
        o: Frames. A short answer is taken from its queue with it.
        busy_jobs: For each job: frame orders that read its slots are under way.
        fenced: A fence has gone through: nothing of its job is queued or still read.
        level: Deliveries in the queue.
        replayed, replay_dropped, result_dropped: A replay is queued, or dropped, or a result is
            dropped, in this cycle.
        emptied: Deliveries that a fence discards in this cycle.
        idle: Empty.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        p = parameters
        super().__init__(
            {
                "phase": In(1),
                "i": In(stream.Signature(Delivery(p), always_ready=True)),
                "i_replay": In(1),
                "jobs": In(data.ArrayLayout(JobEntry(p), p.jobs)),
                "forget": In(1),
                "forgotten": In(p.slot_bits),
                "answers": In(1),
                "room": In(1),
                "o": Out(stream.Signature(Dispatch(p), always_ready=True)),
                "busy_jobs": In(p.jobs),
                "fenced": Out(1),
                "level": Out(17),
                "replayed": Out(1),
                "replay_dropped": Out(1),
                "result_dropped": Out(1),
                "emptied": Out(range(ring_entries_max(p) + 1)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        depth = 2 * p.slots + p.jobs * REPLAYS_PER_JOB
        address = bits_for(depth - 1)
        entry_shape = _entry(p)
        m.submodules.rings = rings = Rings(rings=2 * p.jobs, address=address)
        m.submodules.entries = entries = memory.Memory(shape=entry_shape, depth=depth, init=[])
        m.submodules.scheduler = scheduler = Scheduler(classes=p.jobs + 1, quantum=1 + 4 * p.lanes)
        m.d.comb += [part.phase.eq(self.phase) for part in (rings, scheduler)]

        # Arrivals: whether a result is queued is looked up at once, and acted on in the next cycle.
        valid, replay, queued = Signal(), Signal(), Signal()
        arriving = Signal(Delivery(p))
        m.d.sync += [
            valid.eq(self.i.valid),
            replay.eq(self.i_replay | self.i.payload.join),
            arriving.eq(self.i.payload),
        ]
        queues, result, again, fence = Signal(), Signal(), Signal(), Signal()
        entry_write = entries.write_port()
        written = entry_write.data
        m.d.comb += [
            queues.eq(valid & ~arriving.fence & (arriving.join | ~queued) & ~rings.full),
            result.eq(queues & ~replay),
            again.eq(queues & replay),
            fence.eq(valid & arriving.fence),
            rings.push_ring.eq(Cat(replay, arriving.job)),
            rings.push.eq(queues),
            scheduler.arrives.eq(queues),
            scheduler.arrived.eq(arriving.job),
            entry_write.en.eq(queues),
            entry_write.addr.eq(rings.tail),
            written.blocks.eq(sum(arriving.header.present) << arriving.partial),
            *(written[name].eq(arriving[name]) for name in _KEPT),
            self.replayed.eq(again & ~arriving.join),
            self.replay_dropped.eq(valid & ~fence & replay & ~again),
            self.result_dropped.eq(valid & ~fence & ~replay & ~result),
        ]

        # Phase 1: whose turn it is, and where its next entry is.
        # Of the job that is fenced nothing is sent.
        closing, closing_job, closed = Signal(), Signal(p.job_bits), Signal(p.jobs)
        job = Signal(p.job_bits)
        results = Signal(p.jobs)
        replays = Signal(p.jobs)
        turns = Signal(p.jobs)
        kinds = Signal(p.jobs)
        has_result, has_replay, of_replays = Signal(), Signal(), Signal()
        m.d.comb += [
            results.eq(Cat(rings.occupied[2 * n] & ~closed[n] for n in range(p.jobs))),
            replays.eq(Cat(rings.occupied[2 * n + 1] & ~closed[n] for n in range(p.jobs))),
            scheduler.ready.eq(Cat(results | replays, self.answers)),
            job.eq(scheduler.choice),
            has_result.eq(results.bit_select(job, 1)),
            has_replay.eq(replays.bit_select(job, 1)),
            # By job first: few levels of logic are left before the ring's pointers.
            kinds.eq(
                Cat(
                    rings.occupied[2 * n + 1] & (turns[n] | ~rings.occupied[2 * n])
                    for n in range(p.jobs)
                )
            ),
            of_replays.eq(kinds.bit_select(job, 1)),
            rings.head_ring.eq(Cat(of_replays, job)),
        ]
        m.submodules.workers = workers = memory.Memory(shape=p.worker_bits, depth=p.jobs, init=[])
        worker_write, worker_read = workers.write_port(), workers.read_port(domain="comb")
        entry_read = entries.read_port()
        m.d.comb += [worker_read.addr.eq(job), entry_read.addr.eq(rings.head)]
        taken1, answer1, of_replays1, other1 = Signal(), Signal(), Signal(), Signal()
        job1, group1 = Signal(p.job_bits), Signal()
        worker1, last_worker1 = Signal(p.worker_bits), Signal(p.worker_bits)
        m.d.sync += [
            taken1.eq(self.phase & scheduler.valid & self.room),
            answer1.eq(scheduler.choice == p.jobs),
            of_replays1.eq(of_replays),
            other1.eq(Mux(of_replays, has_result, has_replay)),
            job1.eq(job),
            group1.eq(self.jobs[job].group),
            worker1.eq(worker_read.data),
            last_worker1.eq(self.jobs[job].workers - 1),
        ]

        # Phase 0: the entry is here. The delivery's last frame takes it out of its ring.
        entry = entry_read.data
        to_all, last, dispatched = Signal(), Signal(), Signal()
        o = self.o.payload
        m.d.comb += [
            to_all.eq(~of_replays1 & ~entry.up & ~group1),
            last.eq(~to_all | (worker1 == last_worker1)),
            dispatched.eq(taken1 & ~answer1),
            rings.pop.eq(dispatched & last),
            scheduler.taken.eq(taken1),
            scheduler.cost.eq(Mux(answer1, 1, Cat(Const(1, 1), entry.blocks))),
            # A turn of the short answers is one of them.
            scheduler.more.eq(~answer1 & (~last | rings.remains | other1)),
            worker_write.en.eq(Mux(self.phase, rings.reset, dispatched & ~of_replays1)),
            worker_write.addr.eq(Mux(self.phase, closing_job, job1)),
            worker_write.data.eq(Mux(self.phase | last, 0, worker1 + 1)),
            self.o.valid.eq(taken1),
            o.answer.eq(answer1),
            o.last.eq(last),
            o.group.eq(~of_replays1 & ~entry.up & group1),
            *(o[name].eq(entry[name]) for name in (*_KEPT, "blocks")),
            o.job.eq(job1),
            o.worker.eq(Mux(of_replays1, entry.worker, worker1)),
        ]
        for n in range(p.jobs):
            with m.If(dispatched & (job1 == n)):
                m.d.sync += turns[n].eq(~of_replays1)

        self._know_queued(m, queued, arriving, result, entry, rings.pop & ~of_replays1)

        # A fence: in each step of two cycles one ring is emptied, and gets its new limits.
        step = Signal(range(CLOSING_STEPS + 1))
        first, last_slot = Signal(p.slot_bits), Signal(p.slot_bits)
        with m.If(fence):
            m.d.sync += [
                closing.eq(1),
                closing_job.eq(arriving.job),
                closed.bit_select(arriving.job, 1).eq(1),
                step.eq(0),
                first.eq(arriving.slot),
                last_slot.eq(arriving.slot + arriving.header.operation - 1),
            ]
        with m.Elif(self.phase & (step != CLOSING_STEPS)):
            m.d.sync += step.eq(step + 1)
        with m.Elif(self.fenced):
            m.d.sync += [closing.eq(0), closed.eq(0)]
        replays_at = Value.cast(closing_job * REPLAYS_PER_JOB + 2 * p.slots)
        m.d.comb += [
            rings.reset.eq(closing & self.phase & (step < 2)),
            rings.reset_ring.eq(Cat(step[0], closing_job)),
            rings.first.eq(Mux(step[0], replays_at, Cat(Const(0, 1), first))),
            rings.last.eq(
                Mux(step[0], replays_at + REPLAYS_PER_JOB - 1, Cat(Const(1, 1), last_slot))
            ),
            scheduler.forgive.eq(rings.reset),
            scheduler.forgiven.eq(closing_job),
            self.fenced.eq(
                closing
                & self.phase
                & (step == CLOSING_STEPS)
                & ~self.busy_jobs.bit_select(closing_job, 1)
            ),
            self.emptied.eq(rings.emptied),
        ]
        m.d.sync += self.level.eq(self.level + queues - rings.pop - rings.emptied)
        m.d.comb += self.idle.eq((self.level == 0) & ~valid & ~taken1 & ~closing)
        # For proofs.
        self.rings, self.entries, self.closing = rings, entries, closing
        self.closing_job, self.closed = closing_job, closed
        return m

    def _know_queued(
        self,
        m: Module,
        queued: Signal,
        arriving: data.View,
        enters: Value,
        leaving: data.View,
        leaves: Value,
    ) -> None:
        """Keep a bit for each slot and version: its result is queued.

        It is set while two bits differ, each of which has one writer.

        Args:
            m: Where.
            queued: To be driven: the result that arrives is queued already.
            arriving: The frame that arrives.
            enters: In phase 0: it is queued.
            leaving: The frame that leaves.
            leaves: In phase 0: it is a result.
        """
        p = self._parameters
        forget, forgotten = Signal(), Signal(p.slot_bits)
        m.d.sync += [forget.eq(self.forget), forgotten.eq(self.forgotten)]
        was_entered, is_queued = Signal(2), Signal(2)
        for version in range(2):
            bits = {}
            for name in ("entered", "left"):
                bits[name] = memory.Memory(shape=1, depth=p.slots, init=[])
                m.submodules[f"{name}_{version}"] = bits[name]
            entered_write, left_write = (bits[name].write_port() for name in ("entered", "left"))
            entered_in, left_in = (bits[name].read_port(domain="comb") for name in bits)
            entered_out = bits["entered"].read_port(domain="comb")
            m.d.comb += [
                entered_in.addr.eq(self.i.payload.slot),
                left_in.addr.eq(self.i.payload.slot),
                entered_write.addr.eq(arriving.slot),
                entered_write.data.eq(~was_entered[version]),
                entered_write.en.eq(enters & (arriving.header.round[0] == version)),
                entered_out.addr.eq(Mux(self.phase, forgotten, leaving.slot)),
                left_write.addr.eq(entered_out.addr),
                left_write.data.eq(entered_out.data),
                left_write.en.eq(
                    Mux(self.phase, forget, leaves & (leaving.header.round[0] == version))
                ),
            ]
            m.d.sync += [
                was_entered[version].eq(entered_in.data),
                is_queued[version].eq(entered_in.data ^ left_in.data),
            ]
        m.d.comb += queued.eq(is_queued.bit_select(arriving.header.round[0], 1))
