"""Node control: the node's own registers and counters.

Tested: `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import registers
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["NodeControl"]

AMOUNT_BITS = 7
"""Bits of the largest step of a counter: 64 bytes in one cycle."""


class NodeControl(wiring.Component):
    """Registers and counters of `registers.NODE_REGISTERS` and `registers.NODE_COUNTERS`.

    Latency: read data one cycle after the address; an event is counted one cycle later. Throughput:
    an access and every counter in every cycle. Counters wrap.

    Members:
        address, write, write_data: Register access; bits 0 and 1 of the address are ignored, and
            so is an access below `registers.NODE_BASE`.
        read_data: The register's value, one cycle after its address.
        host_path: The register of that name.
        (name of a counter): By how much it grows in this cycle.
    """

    def __init__(self, parameters: NodeParameters) -> None:
        self._parameters = parameters
        super().__init__(
            {
                "address": In(REGISTER_ADDRESS_BITS),
                "write": In(1),
                "write_data": In(32),
                "read_data": Out(32),
                "host_path": Out(1, init=1),
                **{counter.name: In(AMOUNT_BITS) for counter in registers.NODE_COUNTERS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        shown = {
            "node_identity": registers.NODE_IDENTITY,
            "host_path": self.host_path,
            "build_host_buffer": p.host_buffer_bytes,
            "build_echo_buffer": p.echo_buffer_bytes,
        }
        word = self.address[2:]
        answer = Signal(32)
        with m.Switch(word):
            for register in registers.NODE_REGISTERS:
                with m.Case(register.address // 4):
                    m.d.sync += answer.eq(shown[register.name])
            with m.Default():
                m.d.sync += answer.eq(0)
        with m.If(self.write & (word == registers.node_address_of("host_path") // 4)):
            m.d.sync += self.host_path.eq(self.write_data)

        totals = []
        for counter in registers.NODE_COUNTERS:
            total = Signal(64, name=f"total_{counter.name}")
            amount = getattr(self, counter.name)
            with m.If(amount != 0):
                m.d.sync += total.eq(total + amount)
            totals.append(total)
        first = registers.NODE_COUNTER_BASE // 4
        number = (word - first)[: len(word)]
        from_counters, selected = Signal(), Signal(64)
        half = Signal(32)
        m.d.sync += from_counters.eq(number < 2 * len(totals))
        m.d.comb += [
            selected.eq(Array(totals)[number[1:]]),
            self.read_data.eq(Mux(from_counters, half, answer)),
        ]
        m.d.sync += half.eq(Mux(number[0], selected[32:], selected[:32]))
        return m
