"""The appliance: a board without a host. The node, and the management where the host would be.

::

    rx ─► Node ─────────────────► tx
          │  ▲ axil │  ▲
    host_rx  host_tx▼  │
          └─► Management ◄─ entropy

Tested: `tests/hdl/test_boards_appliance.py`, `tests/hdl/test_boards_top.py`.
"""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.contract import registers
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.node.node import Node
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["APPLIANCE_BUS_BITS", "Appliance"]

APPLIANCE_BUS_BITS = 32
"""The management's width."""


class Appliance(wiring.Component):
    """Node and management in one clock domain.

    Frames that are not for the engine, that the node does not answer itself, and for which the
    management may have a use (`Classify`), go to it; it alone writes registers. Until it has set an
    address nothing is summed.

    With several network ports a frame of the management leaves by all of them: it asks by DHCP
    where the server may be, renews a lease where it was, and answers its controller, who may sit
    behind any.

    Latency and throughput are those of the node; `rx` never stalls.

    Args:
        node: Parameters of the node; the bus has 32 bits.
        management: The component `afflux_hdl.management.management.Management`, or one with its
            members.

    Raises:
        ValueError: If the bus has another width.

    Members:
        rx: Frames from the network, without frame check sequence.
        tx: Frames for the network; `error`, with `last`, marks one that is cut off.
        entropy: Random bits, of no clock.
        configured: The board has an address.
        authenticated: For a cycle: a request of the controller was carried out.
        fault: The settings are damaged, or the entropy source is stuck.
        reset: For a cycle: the controller wants the board to start anew.
        port_rx_dropped, port_tx_cut: With several ports: what these registers of the node show.
    """

    def __init__(self, node: NodeParameters, management: Any) -> None:
        if node.engine.bus_bits != APPLIANCE_BUS_BITS:
            raise ValueError(
                f"an appliance has a bus of {APPLIANCE_BUS_BITS} bits, not {node.engine.bus_bits}"
            )
        self._node = node
        self._management = management
        self._ports = node.engine.ports
        beat = PacketBeat(APPLIANCE_BUS_BITS, self._ports)
        super().__init__(
            {
                "rx": In(stream.Signature(beat, always_ready=True)),
                "tx": Out(stream.Signature(beat)),
                "entropy": In(1),
                "configured": Out(1),
                "authenticated": Out(1),
                "fault": Out(1),
                "reset": Out(1),
                **({name: In(32) for name in registers.PORT_COUNTERS} if self._ports > 1 else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.node = node = Node(self._node, managed=True, port_counters=self._ports > 1)
        m.submodules.management = management = self._management
        connect(m, flipped(self.rx), node.rx)
        connect(m, node.tx, flipped(self.tx))
        if self._ports == 1:
            connect(m, node.host_rx, management.i)
            connect(m, management.o, node.host_tx)
        else:
            self._connect_ports(m, node, management)
        connect(m, management.axil, node.axil)
        m.d.comb += [
            management.entropy.eq(self.entropy),
            self.configured.eq(management.configured),
            self.authenticated.eq(management.authenticated),
            self.fault.eq(management.fault),
            self.reset.eq(management.reset),
        ]
        return m

    def _connect_ports(self, m: Module, node: Node, management: Any) -> None:
        for source, sink in ((node.host_rx, management.i), (management.o, node.host_tx)):
            m.d.comb += [
                sink.valid.eq(source.valid),
                *(
                    sink.payload[name].eq(source.payload[name])
                    for name, _ in PacketBeat(APPLIANCE_BUS_BITS)
                ),
                source.ready.eq(sink.ready),
            ]
        m.d.comb += node.host_tx.payload.net_ports.eq(-1)
        for name in registers.PORT_COUNTERS:
            m.d.comb += getattr(node, name).eq(getattr(self, name))
