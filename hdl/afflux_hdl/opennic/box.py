"""The box: nodes between the adapters and the host's queues of the OpenNIC shell.

::

    rx[p] ─► Intake ───► Node ───► Outlet ─► c2h[p]
    tx[p] ◄─ Outlet ◄──        ◄── Intake ◄─ h2c[p]

    axil ─► ShellRegisterPort ─► registers of Node and BoxControl

Two ports have a node each, or share one:

::

    rx[0] ─► Intake ─► PacketFifo ─┐                          ┌─► Outlet ─► tx[0]
                                   ├─► Node ─► FrameSplit ────┤
    rx[1] ─► Intake ─► PacketFifo ─┘                          └─► Outlet ─► tx[1]

Tested: `tests/sim/test_box.py`.
"""

from amaranth.hdl import Cat, Const, DomainRenamer, Module, Mux, ResetSignal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.contract.box_registers import BOX_BASE, PAGE_BYTES, node_base
from afflux_hdl.lib.frame_arbiter import FrameArbiter
from afflux_hdl.lib.frame_boundary import CutByReset
from afflux_hdl.lib.frame_split import FrameSplit
from afflux_hdl.lib.link_watch import LinkWatch
from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.node.node import Node
from afflux_hdl.opennic.box_control import BoxControl
from afflux_hdl.opennic.intake import Intake
from afflux_hdl.opennic.outlet import Outlet
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.shell_register_port import SHELL_AXI_LITE, ShellRegisterPort
from afflux_hdl.opennic.streams import BUS_BITS, FIRST_PORT_BIT, BoxBeat

__all__ = ["Box"]


class Box(wiring.Component):
    """One or two network ports, with one node or a node each, in the OpenNIC shell.

    Four domains, the first three at one clock:

    * `sync`: the nodes, reset as the operator or the shell wants it.
    * `shell`: what hands frames to the shell; reset only when the shell is. So a reset of the nodes
      amid traffic never leaves half a frame in an adapter or in a DMA queue.
    * `free`: what takes frames from the shell, and counters; never reset.
    * `outer`: the register port's own clock, reset with the shell.

    Every beat from an adapter is taken in the cycle in which it is offered, so that the adapters'
    receive buffers of a few KiB never fill. Frames of the host wait for the node as it lets them.

    Two ports that share a node bring up to 1.6 times what its bus takes (`docs/scaling.md`). Frames
    that come faster wait in a buffer of each port; a frame that does not fit is dropped whole and
    counted. Whole frames of both ports take turns.

    Latency: 1 cycle into the node, and 5 from a frame's last beat out of the node to its first one
    at the shell. Throughput: one beat in each cycle on each stream.

    Members:
        rx, tx: Frames from and to the adapter of each port.
        h2c, c2h: Frames from and to the host, on each of its streams.
        axil: Registers, in domain `outer`.
        away: In domain `outer`: the nodes are in reset.
    """

    def __init__(self, parameters: BoxParameters) -> None:
        self._parameters = parameters
        port, host = stream.Signature(BoxBeat), stream.Signature(BoxBeat)
        super().__init__(
            {
                "rx": In(port).array(parameters.ports),
                "tx": Out(port).array(parameters.ports),
                "h2c": In(host).array(parameters.functions),
                "c2h": Out(host).array(parameters.functions),
                "axil": In(SHELL_AXI_LITE),
                "away": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        pages = {node_base(n) // PAGE_BYTES: f"node_{n}" for n in range(p.nodes)}
        pages[BOX_BASE // PAGE_BYTES] = "box"
        port = ShellRegisterPort(pages)
        m.submodules.registers = port
        m.submodules.control = control = BoxControl(p)
        connect(m, flipped(self.axil), port.shell)
        connect(m, port.box, control.axil)
        m.d.comb += port.away.eq(self.away)

        # At the edge: what comes from the shell, and what goes to it.
        rx = [self._intake(m, f"rx_{n}", self.rx[n], 0) for n in range(p.ports)]
        h2c = [
            self._intake(m, f"h2c_{n}", self.h2c[n], self._reachable(n)) for n in range(p.functions)
        ]
        buffer = p.node.host_buffer_bytes
        tx, c2h = [], []
        for n in range(p.ports):
            port_bit, function_bit = 1 << FIRST_PORT_BIT + n, 1 << n
            tx.append(self._outlet(m, f"tx_{n}", self.tx[n], buffer, function_bit, port_bit))
            c2h.append(self._outlet(m, f"c2h_{n}", self.c2h[n], buffer, port_bit, function_bit))

        shares = p.ports > p.nodes
        for n in range(p.nodes):
            m.submodules[f"node_{n}"] = node = Node(p.node)
            connect(m, getattr(port, f"node_{n}"), node.axil)
            if shares:
                dropped = self._shared_ports(m, node, rx, tx, c2h)
            else:
                # The node takes every beat, in a reset too: it follows frames through it.
                m.d.comb += [
                    node.rx.payload.eq(rx[n].o.payload),
                    node.rx.valid.eq(rx[n].o.valid),
                    rx[n].o.ready.eq(1),
                ]
                connect(m, node.tx, tx[n].i)
                connect(m, node.host_rx, c2h[n].i)
                dropped = [Const(0, 1)] * p.ports
            numbers = range(p.functions) if shares else range(n, p.functions, p.ports)
            self._from_host(m, f"from_host_{n}", [(f, h2c[f]) for f in numbers], node)

        for n in range(p.ports):
            m.d.comb += control.ports[n].eq(
                Cat(
                    *(rx[n].size_mismatch, rx[n].malformed, dropped[n]),
                    *(tx[n].sent, tx[n].refused, tx[n].dropped),
                )
            )
        for n in range(p.functions):
            out = Cat(c2h[n].sent, c2h[n].refused, c2h[n].dropped) if n < p.ports else Cat()
            m.d.comb += control.hosts[n].eq(
                Cat(h2c[n].size_mismatch, h2c[n].malformed, h2c[n].no_destination, out)
            )
        return m

    def _reachable(self, function: int) -> int:
        """Return the network ports of the node to which a stream of the host leads."""
        p = self._parameters
        return (1 << p.ports) - 1 if p.ports > p.nodes else 1 << function % p.ports

    def _shared_ports(
        self, m: Module, node: Node, rx: list[Intake], tx: list[Outlet], c2h: list[Outlet]
    ) -> list[Value]:
        """Put a node behind several ports. Return for each that it drops a frame from there.

        A port whose link is down, or a function whose driver is not there, must not stop what the
        other has to do: what waits for it too long is dropped.
        """
        p = self._parameters
        m.submodules.merge = merge = DomainRenamer("shell")(
            FrameArbiter(PacketBeat(BUS_BITS), sources=p.ports)
        )
        dropped: list[Value] = []
        arrived = []
        for n, source in enumerate(rx):
            part = PacketFifo(bus_bits=BUS_BITS, depth_bytes=p.port_buffer_bytes, lossy=True)
            m.submodules[f"arrived_{n}"] = DomainRenamer("shell")(part)
            connect(m, source.o, part.i)
            connect(m, part.o, merge.i[n])
            arrived.append(part)
            dropped.append(part.overflowed)
        # The node follows frames through resets: one that is cut off here must get its end.
        cut = CutByReset()
        m.submodules.arrived_cut = DomainRenamer("shell")(cut)
        m.d.comb += [
            node.rx.valid.eq(merge.o.valid),
            *(node.rx.payload[each].eq(merge.o.payload[each]) for each, _ in PacketBeat(BUS_BITS)),
            node.rx.payload.net_ports.eq(1 << merge.chosen),
            merge.o.ready.eq(1),
            cut.taken.eq(merge.o.valid),
            cut.last.eq(merge.o.payload.last),
            arrived[0].cut.eq(cut.cut),
        ]
        for name, source, outlets in (("tx", node.tx, tx), ("c2h", node.host_rx, c2h)):
            split = FrameSplit(bus_bits=BUS_BITS, ports=p.ports)
            m.submodules[f"split_{name}"] = DomainRenamer("shell")(split)
            connect(m, source, split.i)
            for o, outlet in zip(split.o, outlets, strict=True):
                connect(m, o, outlet.i)
        for n, (outlet, function) in enumerate(zip(tx, c2h, strict=True)):
            watch = LinkWatch(cycles=p.node.engine.link_timeout)
            m.submodules[f"link_watch_{n}"] = DomainRenamer("shell")(watch)
            m.d.comb += [
                watch.valid.eq(outlet.o.valid),
                watch.ready.eq(outlet.o.ready),
                outlet.blocked.eq(watch.down),
                function.blocked.eq(1),
            ]
        return dropped

    def _from_host(
        self, m: Module, name: str, sources: list[tuple[int, Intake]], node: Node
    ) -> None:
        """Merge the host's streams; frames that do not say where to go leave by their own port."""
        p = self._parameters
        beat = PacketBeat(BUS_BITS, p.node.engine.ports)
        m.submodules[name] = merged = DomainRenamer("free")(
            FrameArbiter(beat, sources=len(sources))
        )
        for (function, source), i in zip(sources, merged.i, strict=True):
            m.d.comb += [
                i.valid.eq(source.o.valid),
                *(i.payload[each].eq(source.o.payload[each]) for each, _ in PacketBeat(BUS_BITS)),
                source.o.ready.eq(i.ready),
            ]
            if p.node.engine.ports > 1:
                own = 1 << function % p.ports
                m.d.comb += i.payload.net_ports.eq(Mux(source.port == 0, own, source.port))
        # Beats taken under reset would be lost.
        open_ = ~ResetSignal("sync")
        m.d.comb += [
            node.host_tx.payload.eq(merged.o.payload),
            node.host_tx.valid.eq(merged.o.valid & open_),
            merged.o.ready.eq(node.host_tx.ready & open_),
        ]

    def _intake(self, m: Module, name: str, shell: stream.Interface, ports: int) -> Intake:
        part = Intake(ports=ports)
        m.submodules[name] = DomainRenamer("free")(part)
        connect(m, flipped(shell), part.i)
        return part

    def _outlet(
        self, m: Module, name: str, shell: stream.Interface, depth: int, src: int, dst: int
    ) -> Outlet:
        part = Outlet(depth_bytes=depth, src=src, dst=dst)
        m.submodules[name] = DomainRenamer("shell")(part)
        connect(m, part.o, flipped(shell))
        return part
