"""Route table: where each job's results and partial sums go, other than to its workers."""

from amaranth.hdl import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.engine.layouts import Route
from afflux_hdl.engine.parameters import Parameters

__all__ = ["RouteTable"]


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
