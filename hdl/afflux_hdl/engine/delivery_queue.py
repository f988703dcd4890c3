"""Delivery queue: results that wait to be sent. Results cannot overflow it; replays are bounded.

One bit for each slot and version says whether its result is queued for all workers. It keeps a slot
from being queued twice, so a queue of that many entries cannot overflow with results. Replays have
space of their own: a few for each job, so that no job's replays crowd out another's.

Proved: `tests/formal/stage_streams.py`. Tested: `tests/sim/test_engine_queues.py`,
`tests/sim/test_engine_floods.py`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.engine.layouts import Delivery
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.queue import Queue

__all__ = ["REPLAYS_PER_JOB", "REPLIES", "DeliveryQueue"]

REPLAYS_PER_JOB = 8
"""Replays of a job that may be queued; further ones are dropped, and asked for again."""

REPLIES = 16
"""Short answers that may be queued."""

CONTROLS = 2
"""Orders of control that may be queued: a JOIN and a fence, whose passing control waits for."""


class DeliveryQueue(wiring.Component):
    """Queues deliveries in order.

    Latency: 3 cycles. Throughput: one delivery in each cycle in, one out. `i` has no
    back-pressure: a replay, or a partial sum that goes up again, is dropped if the same result is
    queued for all workers or its job has `REPLAYS_PER_JOB` queued. A second result for a slot and
    version that is still queued is dropped too; probes recover it. Only a worker that goes on
    without its result can cause that.

    Members:
        i: Deliveries from the merge stage.
        i_replay: With `i`: the delivery is a replay.
        o: The next delivery.
        done, done_delivery: The delivery taken last from `o` has been carried out.
        level: Deliveries in the queue.
        replayed, replay_dropped: A replay is queued, or dropped, in this cycle.
        idle: Empty.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        delivery = Delivery(parameters)
        super().__init__(
            {
                "i": In(stream.Signature(delivery, always_ready=True)),
                "i_replay": In(1),
                "o": Out(stream.Signature(delivery)),
                "done": In(1),
                "done_delivery": In(delivery),
                "level": Out(17),
                "replayed": Out(1),
                "replay_dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        shape = Delivery(p)
        m.submodules.queue = queue = Queue(
            shape,
            depth=2 * p.slots + p.jobs * REPLAYS_PER_JOB + REPLIES + CONTROLS,
            always_ready=True,
        )
        wiring.connect(m, queue.o, wiring.flipped(self.o))

        # A bit is set while these two differ: each has one writer.
        flags = {}
        for name in ("entered", "left"):
            flags[name] = memory.Memory(shape=1, depth=2 * p.slots, init=[])
            m.submodules[name] = flags[name]
        entered_write = flags["entered"].write_port()
        left_write = flags["left"].write_port()
        reads = {
            (name, side): flags[name].read_port(domain="comb")
            for name in flags
            for side in ("in", "out")
        }
        # The bits are read in the cycle of arrival and acted on in the next. Merge finishes at most
        # one operation in two cycles, so what one delivery writes is there when the next one reads.
        valid, replay, queued = Signal(), Signal(), Signal()
        arriving, leaving = Signal(shape), self.done_delivery
        address_read = Cat(self.i.payload.header.round[0], self.i.payload.slot)
        address_in = Cat(arriving.header.round[0], arriving.slot)
        address_out = Cat(leaving.header.round[0], leaving.slot)
        entered = Signal()
        m.d.sync += [
            valid.eq(self.i.valid),
            replay.eq(self.i_replay),
            arriving.eq(self.i.payload),
            entered.eq(reads["entered", "in"].data),
            queued.eq(reads["entered", "in"].data ^ reads["left", "in"].data),
        ]
        for name in flags:
            m.d.comb += [
                reads[name, "in"].addr.eq(address_read),
                reads[name, "out"].addr.eq(address_out),
            ]

        waiting = [Signal(range(REPLAYS_PER_JOB + 1), name=f"replays_{n}") for n in range(p.jobs)]
        jobs_full = Signal(p.jobs)
        is_result, replays, ends_replay = Signal(), Signal(), Signal()
        m.d.comb += [
            is_result.eq(valid & ~arriving.reply & ~replay & ~queued),
            replays.eq(valid & replay & ~queued & ~jobs_full.bit_select(arriving.job, 1)),
            ends_replay.eq(self.done & ~leaving.reply & ~leaving.everyone),
            queue.i.payload.eq(arriving),
            queue.i.valid.eq(is_result | replays | (valid & arriving.reply)),
            self.replayed.eq(replays),
            self.replay_dropped.eq(valid & replay & ~replays),
            entered_write.addr.eq(address_in),
            entered_write.data.eq(~entered),
            entered_write.en.eq(is_result),
            left_write.addr.eq(address_out),
            left_write.data.eq(reads["entered", "out"].data),
            left_write.en.eq(self.done & leaving.everyone),
            self.level.eq(queue.level),
            self.idle.eq((queue.level == 0) & ~valid),
        ]
        for n, count in enumerate(waiting):
            more, fewer = Signal(name=f"more_{n}"), Signal(name=f"fewer_{n}")
            m.d.comb += [
                more.eq(replays & (arriving.job == n)),
                fewer.eq(ends_replay & (leaving.job == n)),
            ]
            m.d.sync += [
                count.eq(count + more - fewer),
                jobs_full[n].eq(
                    ~fewer & ((count == REPLAYS_PER_JOB) | ((count == REPLAYS_PER_JOB - 1) & more))
                ),
            ]
        return m
