"""Worker table and route table: where each job's frames go.

The worker table holds the address from which each worker of each job has joined. The route table
holds where else a job's results and partial sums go: its multicast group and its parent.

Tested: `tests/sim/test_engine_jobs.py`, `tests/sim/test_engine_tree.py`,
`tests/sim/test_planted_bugs.py`.
"""

from amaranth.hdl import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In

from afflux_hdl.engine.layouts import Route, WorkerAddress, WorkerEntry
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort, WritePort

__all__ = ["RouteTable", "WorkerTable"]


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
        self._depth = 1 << address.size
        super().__init__(
            {
                "write": In(WritePort(address, WorkerEntry)),
                "check": In(ReadPort(address, WorkerEntry)),
                "send": In(ReadPort(address, WorkerEntry)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.entries = entries = memory.Memory(
            shape=WorkerEntry, depth=self._depth, init=[]
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
