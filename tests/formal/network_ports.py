"""Proofs: a frame leaves by the network ports behind which the end is that it is for.

In an engine with several ports. `stage_streams.py` follows the ports of a frame that comes to its
summary, the first proof here from there into the tables and into a short answer, the second one
from the tables to the order of a frame, and `sending.py` from the order to each of its beats. On
the way they wait in queues, which change nothing.
"""

from typing import Any

from amaranth.hdl import Array, Assert, Cat, Cover, Elaboratable, Module, Mux, Signal
from amaranth.lib import data

from afflux_hdl.contract import wire
from afflux_hdl.engine.admit import Admit
from afflux_hdl.engine.layouts import WorkerEntry
from afflux_hdl.engine.parameters import Parameters
from tests.formal import seams
from tests.formal.boxes import BoxedEngine
from tests.formal.stage_streams import drive
from tests.formal.watched import choice, watching

__all__ = ["AdmittedPortsHarness", "OrderedPortsHarness"]


def behind(m: Module, stages: int, first: Any, name: str) -> list[Any]:
    """Return a signal and what it was so many cycles before, one after the other."""
    found = [first]
    for n in range(stages):
        found.append(Signal(first.shape(), name=f"{name}_{n + 1}"))
        m.d.sync += found[-1].eq(found[-2])
    return found


class AdmittedPortsHarness(Elaboratable):
    """The admit stage: whatever it keeps or answers has the ports of the frame that it is about.

    Anything at its other ports, at any time.
    """

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        m.submodules.admit = admit = Admit(p)
        drive(m, admit)
        frame = admit.i.payload
        seams.SUMMARY.require(m, admit.i)
        seams.CAME_BY_PORT.require(m, admit.i.valid, frame.source.net_ports, of="summary")
        taken = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    "net_ports": p.ports,
                    "from_parent": 1,
                    "type": frame.header.type.shape(),
                    "job": p.job_bits,
                    "worker": p.worker_bits,
                }
            )
        )
        m.d.comb += [
            taken.valid.eq(admit.i.valid & admit.i.ready),
            taken.net_ports.eq(frame.source.net_ports),
            taken.from_parent.eq(frame.from_parent),
            taken.type.eq(frame.header.type),
            taken.job.eq(frame.job),
            taken.worker.eq(frame.header.worker),
        ]
        stages = behind(m, 4, taken, "taken")
        m.d.comb += [Assert(~each.valid | each.net_ports.any()) for each in stages]
        write, reply = admit.write_worker, admit.replies
        joins, confirms, answers = stages[2:]
        with m.If(write.enable):
            m.d.comb += [
                Assert(joins.valid & (joins.type == wire.Type.JOIN) & ~joins.from_parent),
                Assert(write.data.joined),
                Assert(write.data.peer.net_ports == joins.net_ports, "a worker is where it joins"),
                Assert((write.address.job == joins.job) & (write.address.worker == joins.worker)),
            ]
        with m.If(admit.parent_joined):
            m.d.comb += [
                Assert(confirms.valid & (confirms.type == wire.Type.JOINED) & confirms.from_parent),
                Assert(admit.parent_ports == confirms.net_ports, "a parent is where it confirms"),
                Assert(admit.parent_joined_job == confirms.job),
            ]
        with m.If(reply.valid):
            m.d.comb += [
                Assert(answers.valid),
                Assert(reply.payload.peer.net_ports == answers.net_ports, "answered where it came"),
            ]
        m.d.comb += [
            Cover(write.enable & (write.data.peer.net_ports == 2)),
            Cover(admit.parent_joined & (admit.parent_ports == 1)),
            Cover(reply.valid & (reply.payload.peer.net_ports == 2)),
        ]
        seams.CAME_BY_PORT.guarantee(m, write.enable, write.data.peer.net_ports, of="join")
        return m


class OrderedPortsHarness(Elaboratable):
    """The replicate stage and its tables, in the engine's own wiring, with anything around them.

    For any job and any worker of it: an order for the worker has the ports by which its latest JOIN
    has come, one for the job's group those of all JOINs since the job was forgotten, one for the
    parent those by which it has confirmed since, or all, and a short answer its own. Each frame
    that is dispatched has one order, or none.
    """

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        with watching("afflux_hdl.engine.tables", "amaranth.lib.fifo") as memories:
            engine = BoxedEngine(m, p, ("Replicate", "WorkerTable", "PortTable"), platform)
        for name in ("receive", "admit", "merge", "transmit", "slot_state", "slot_memory"):
            engine.anything(engine[name])
        for name in ("route_table", "control", "counters", "queue"):
            engine.anything(engine[name])
        replicate, admit = engine["replicate"], engine["admit"]
        write = engine["worker_table"].write
        joined = write.enable & write.data.joined
        seams.CAME_BY_PORT.require(m, joined, write.data.peer.net_ports, of="join")

        # The values written about one job, and about one worker of it.
        job, worker = choice(p.jobs), choice(p.workers)
        entry = engine["worker_table.entries"]
        assert entry in memories
        m.d.comb += entry.watched.eq(Cat(worker, job))
        of_job = write.enable & (write.address.job == job)
        known, own = Signal(), Signal(p.ports)
        group, parent = Signal(p.ports), Signal(p.ports, init=-1)
        with m.If(of_job & (write.address.worker == worker)):
            m.d.sync += [known.eq(write.data.joined), own.eq(write.data.peer.net_ports)]
        with m.If(of_job):
            with m.If(write.data.joined):
                m.d.sync += group.eq(group | write.data.peer.net_ports)
            with m.Else():
                m.d.sync += [group.eq(0), parent.eq(-1)]
        with m.If(admit.parent_joined & (admit.parent_joined_job == job)):
            m.d.sync += parent.eq(admit.parent_ports)
        rows = Array(row.as_value() for row in engine["port_table.rows"])
        held = data.View(WorkerEntry(p), entry.content.as_value())
        m.d.comb += [
            Assert(rows[job] == Cat(group, parent)),
            Assert(~known | (held.joined & (held.peer.net_ports == own))),
        ]

        # The purpose of a frame that is dispatched; a cycle later the tables have answered.
        dispatched = Signal(
            data.StructLayout({"valid": 1, "answer": 1, "to_worker": 1, "net_ports": p.ports})
        )
        frame = replicate.i.payload
        of_tables = ~frame.answer & (frame.job == job)
        to_worker = of_tables & ~frame.up & ~frame.group & (frame.worker == worker)
        m.d.comb += [
            dispatched.answer.eq(frame.answer),
            dispatched.to_worker.eq(to_worker),
            dispatched.valid.eq(
                replicate.i.valid
                & (frame.answer | to_worker | (of_tables & (frame.up | frame.group)))
            ),
            dispatched.net_ports.eq(
                Mux(
                    frame.answer,
                    replicate.replies.payload.peer.net_ports,
                    Mux(frame.up, parent, group),
                )
            ),
        ]
        asked = Signal.like(dispatched)
        m.d.sync += asked.eq(dispatched)
        found = Signal.like(dispatched)
        m.d.comb += found.eq(asked)
        sends = engine["replicate.valid1"] & engine["replicate.sendable"]
        with m.If(asked.to_worker):
            # By a JOIN of the cycle before, too.
            m.d.comb += [found.net_ports.eq(own), found.valid.eq(asked.valid & known)]
        orders = engine["replicate.orders"].i
        due = behind(m, 3, found, "found")[-1]
        ordered = behind(m, 3, sends, "ordered")[-1]
        peer = orders.payload.peer
        m.d.comb += [
            Assert(orders.valid == ordered, "one order, or none"),
            Assert(~(orders.valid & due.valid) | (peer.net_ports == due.net_ports), "by its ports"),
            Cover(orders.valid & due.valid & due.to_worker & (peer.net_ports == 2)),
            Cover(orders.valid & due.valid & ~due.to_worker & ~due.answer & (peer.net_ports == 3)),
        ]
        return m
