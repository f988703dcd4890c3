"""Worker table and route table: where each job's frames go.

The worker table holds the address from which each worker of each job has joined. The route table
holds where else a job's results and partial sums go: its multicast group and its parent. With
several network ports, the port table holds by which of them these two leave.

Tested: `tests/sim/test_engine_jobs.py`, `tests/sim/test_engine_tree.py`,
`tests/sim/test_network_ports.py`, `tests/sim/test_late_join.py`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In

from afflux_hdl.engine.layouts import JobPorts, Route, WorkerAddress, WorkerEntry
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort, WritePort

__all__ = ["PortTable", "RouteTable", "WorkerTable"]


class WorkerTable(wiring.Component):
    """Holds one entry for each job and worker, for two readers.

    Latency: an entry follows one cycle after its address. An entry that is written in the cycle in
    which it is addressed is read as written. Throughput: two reads and one write in each cycle.

    Members:
        write: Sets an entry.
        check: Read port of the admit stage.
        send: Read port of the replicate stage.
    """

    def __init__(self, parameters: Parameters) -> None:
        address = WorkerAddress(parameters)
        self._entry = entry = WorkerEntry(parameters)
        self._depth = 1 << address.size
        super().__init__(
            {
                "write": In(WritePort(address, entry)),
                "check": In(ReadPort(address, entry)),
                "send": In(ReadPort(address, entry)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.entries = self.entries = entries = memory.Memory(
            shape=self._entry, depth=self._depth, init=[]
        )
        write = entries.write_port()
        check = entries.read_port(transparent_for=(write,))
        send = entries.read_port(transparent_for=(write,))
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            check.addr.eq(self.check.address),
            self.check.data.eq(check.data),
            send.addr.eq(self.send.address),
            self.send.data.eq(send.data),
        ]
        return m


class RouteTable(wiring.Component):
    """Holds one route for each job, for two readers.

    Latency: a route follows one cycle after its address. Throughput: two reads and one write in
    each cycle. A route is written only while its job is disabled, when no reader needs it.

    Members:
        write: Sets a route.
        check: Read port of the admit stage.
        send: Read port of the replicate stage.
    """

    def __init__(self, parameters: Parameters) -> None:
        job = parameters.job_bits
        self._depth = 1 << job
        super().__init__(
            {
                "write": In(WritePort(job, Route)),
                "check": In(ReadPort(job, Route)),
                "send": In(ReadPort(job, Route)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.routes = routes = memory.Memory(shape=Route, depth=self._depth, init=[])
        write, check, send = routes.write_port(), routes.read_port(), routes.read_port()
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            check.addr.eq(self.check.address),
            self.check.data.eq(check.data),
            send.addr.eq(self.send.address),
            self.send.data.eq(send.data),
        ]
        return m


class PortTable(wiring.Component):
    """Holds for each job by which network ports its group and its parent are reached.

    A result for the group leaves once by each port by which a worker has joined. The parent's port
    is unknown at first: its job's JOIN leaves by all ports, and later frames by the one by which
    the parent has confirmed it.

    Latency: a row follows one cycle after its address. Throughput: a read and both writes in each
    cycle.

    Members:
        write: A worker of this job has joined by these ports; without any, one is forgotten, as all
            are when a job is created or destroyed.
        parent: This job's parent has confirmed by this port.
        send: Read port of the replicate stage.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = p = parameters
        super().__init__(
            {
                "write": In(WritePort(p.job_bits, p.ports)),
                "parent": In(WritePort(p.job_bits, p.ports)),
                "send": In(ReadPort(p.job_bits, JobPorts(p))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        rows = Signal(data.ArrayLayout(JobPorts(p), p.jobs), init=[{"parent": -1}] * p.jobs)
        self.rows = rows
        for n in range(p.jobs):
            row = rows[n]
            with m.If(self.write.enable & (self.write.address == n)):
                with m.If(self.write.data.any()):
                    m.d.sync += row.group.eq(row.group | self.write.data)
                with m.Else():
                    m.d.sync += [row.group.eq(0), row.parent.eq(-1)]
            with m.If(self.parent.enable & (self.parent.address == n)):
                m.d.sync += row.parent.eq(self.parent.data)
        m.d.sync += self.send.data.eq(rows[self.send.address])
        return m
