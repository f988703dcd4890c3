"""Node control: the node's own registers and counters.

Tested: `tests/hdl/test_counters.py`, `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import registers
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.lib.counter_bank import CounterBank
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["NodeControl", "largest_steps"]


def largest_steps(parameters: NodeParameters) -> dict[str, int]:
    """Return by how much each counter can grow in one cycle, by its name."""
    of_bytes = parameters.engine.bus_bytes
    # A request for ARP and one for an echo can be dropped at once.
    several = {"replies_dropped": 2, "network_bytes_in": of_bytes, "network_bytes_out": of_bytes}
    return {counter.name: several.get(counter.name, 1) for counter in registers.NODE_COUNTERS}


class NodeControl(wiring.Component):
    """Registers and counters of `registers.NODE_REGISTERS` and `registers.NODE_COUNTERS`.

    Latency: read data one cycle after the address; an event is counted two cycles later.
    Throughput: an access and every counter in every cycle. Counters wrap.

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
                **{name: In(range(most + 1)) for name, most in largest_steps(parameters).items()},
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

        steps = largest_steps(p)
        m.submodules.bank = bank = CounterBank(steps=steps)
        m.d.comb += [getattr(bank, name).eq(getattr(self, name)) for name in steps]
        place = Signal.like(word)
        from_counters, half = Signal(), Signal()
        m.d.comb += [
            place.eq(word - registers.NODE_COUNTER_BASE // 4),
            bank.number.eq(place[1:]),
            self.read_data.eq(
                Mux(from_counters, Mux(half, bank.value[32:], bank.value[:32]), answer)
            ),
        ]
        m.d.sync += [
            from_counters.eq(place < 2 * len(registers.NODE_COUNTERS)),
            half.eq(place[0]),
        ]
        return m
