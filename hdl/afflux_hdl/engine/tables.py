"""Worker table and route table: where each job's frames go.

The worker table says from where each worker of each job has joined, the route table where the job's
results and partial sums go, other than to its workers.
"""

from amaranth.hdl import Cat, Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.engine.layouts import Route, WorkerEntry
from afflux_hdl.engine.parameters import Parameters

__all__ = ["RouteTable", "WorkerTable"]


class WorkerTable(wiring.Component):
    """A memory of one entry for each job and worker, with two readers.

    Latency: an entry follows one cycle after its address; an entry that is written in the cycle in
    which it is addressed is read as written. Throughput: two reads and one write in each cycle.

    Members:
        write, write_job, write_worker, write_entry: Sets an entry.
        check_job, check_worker, checked: Reader of the admit stage.
        send_job, send_worker, sent: Reader of the replicate stage.
    """

    def __init__(self, parameters: Parameters) -> None:
        job, worker = parameters.job_bits, parameters.worker_bits
        self._depth = 1 << (job + worker)
        super().__init__(
            {
                "write": In(1),
                "write_job": In(job),
                "write_worker": In(worker),
                "write_entry": In(WorkerEntry),
                "check_job": In(job),
                "check_worker": In(worker),
                "checked": Out(WorkerEntry),
                "send_job": In(job),
                "send_worker": In(worker),
                "sent": Out(WorkerEntry),
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
            write.en.eq(self.write),
            write.addr.eq(Cat(self.write_worker, self.write_job)),
            write.data.eq(self.write_entry),
            check.addr.eq(Cat(self.check_worker, self.check_job)),
            self.checked.eq(check.data),
            send.addr.eq(Cat(self.send_worker, self.send_job)),
            self.sent.eq(send.data),
        ]
        return m


class RouteTable(wiring.Component):
    """A memory of one route for each job, with two readers.

    Latency: a route follows one cycle after its address. Throughput: two reads and one write in
    each cycle. A route is written while its job is disabled, so no reader needs it meanwhile.

    Members:
        write, write_job, write_route: Sets a route.
        check_job, checked: Reader of the admit stage.
        send_job, sent: Reader of the replicate stage.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._depth = 1 << parameters.job_bits
        super().__init__(
            {
                "write": In(1),
                "write_job": In(parameters.job_bits),
                "write_route": In(Route),
                "check_job": In(parameters.job_bits),
                "checked": Out(Route),
                "send_job": In(parameters.job_bits),
                "sent": Out(Route),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.routes = routes = memory.Memory(shape=Route, depth=self._depth, init=[])
        write, check, send = routes.write_port(), routes.read_port(), routes.read_port()
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(self.write_job),
            write.data.eq(self.write_route),
            check.addr.eq(self.check_job),
            self.checked.eq(check.data),
            send.addr.eq(self.send_job),
            self.sent.eq(send.data),
        ]
        return m
