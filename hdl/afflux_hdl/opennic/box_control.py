"""Box control: the box's own page of registers.

Tested: `tests/sim/test_box.py`.
"""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from afflux_hdl.contract.box_registers import (
    BOX_COUNTER_BASE,
    BOX_IDENTITY,
    BOX_REGISTERS,
    HOST_COUNTERS,
    PORT_COUNTERS,
)
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.node.axi_lite import AxiLite
from afflux_hdl.node.node import AXI_LITE
from afflux_hdl.opennic.parameters import BoxParameters

__all__ = ["BoxControl"]

STRIDE = 8
"""Counters of a port or of a stream to and from the host, with room for more."""


class BoxControl(wiring.Component):
    """Registers and counters of `contract/box_registers.py`.

    The counters lie in domain `free`, which is never reset: a reset of the nodes hides nothing.

    Latency: that of `AxiLite`; an event is counted one cycle later. Throughput: every counter in
    every cycle.

    Args:
        parameters: The box's sizes.

    Members:
        axil: The register port.
        ports, hosts: For each port, and each stream to and from the host, the events of this cycle,
            in the order of `PORT_COUNTERS` and `HOST_COUNTERS`.
    """

    def __init__(self, parameters: BoxParameters) -> None:
        self._parameters = parameters
        super().__init__(
            {
                "axil": In(AXI_LITE),
                "ports": In(len(PORT_COUNTERS)).array(parameters.ports),
                "hosts": In(len(HOST_COUNTERS)).array(parameters.functions),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        shown = {
            BOX_REGISTERS["box_identity"]: BOX_IDENTITY,
            BOX_REGISTERS["box_ports"]: p.ports,
            BOX_REGISTERS["box_nodes"]: p.nodes,
            BOX_REGISTERS["box_functions"]: p.functions,
        }
        counters = {}
        for n, events in enumerate((*self.ports, *self.hosts)):
            for k in range(len(events)):
                counter = Signal(32, name=f"counter_{n}_{k}")
                with m.If(events[k]):
                    m.d.free += counter.eq(counter + 1)
                counters[STRIDE * n + k] = counter
        first = BOX_COUNTER_BASE // 4
        m.submodules.axi_lite = slave = AxiLite(
            address_bits=REGISTER_ADDRESS_BITS,
            readable=[*shown, *(BOX_COUNTER_BASE + 4 * n for n in counters)],
            writable=[],
        )
        for name in ("aw", "w", "ar", "b", "r"):
            connect(m, flipped(getattr(self.axil, name)), getattr(slave, name))
        word = slave.address[2:]
        answer, count, counted = Signal(32), Signal(32), Signal()
        values = Array(counters.get(n, 0) for n in range(max(counters) + 1))
        with m.Switch(word):
            for address, value in shown.items():
                with m.Case(address // 4):
                    m.d.sync += answer.eq(value)
        m.d.sync += [
            counted.eq(word >= first),
            count.eq(values[(word - first)[: len(word)]]),
        ]
        m.d.comb += slave.read_data.eq(Mux(counted, count, answer))
        return m
