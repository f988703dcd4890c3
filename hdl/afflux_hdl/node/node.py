"""The node: what stands between a network port and a host, with the engine in it.

::

                 ┌─► Engine ─────────────────────────┐
                 ├─► Arp ────────────────────────────┤
    rx ─► Classify                                   Egress ─► tx
                 ├─► Echo ───────────────────────────┤
                 └─► PacketFifo ─► host_rx           │
                                   host_tx ─► PacketFifo

                  axil ─► AxiLite ─► registers of Engine and NodeControl

Tested: `tests/sim/test_cocotb_node.py`, `tests/hdl/test_node_verilog.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.contract import registers
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.engine.engine import Engine
from afflux_hdl.lib.frame_boundary import CutByReset, WholeFrames
from afflux_hdl.lib.link_watch import LinkWatch
from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.lib.skid_buffer import SkidBuffer
from afflux_hdl.node.arp import Arp
from afflux_hdl.node.axi_lite import AxiLite, ReadData, WriteData
from afflux_hdl.node.classify import Classify, Destination
from afflux_hdl.node.control import NodeControl
from afflux_hdl.node.echo import Echo
from afflux_hdl.node.egress import Egress
from afflux_hdl.node.frame_meter import FrameMeter
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["AXI_LITE", "Node"]

AXI_LITE = wiring.Signature(
    {
        "aw": Out(stream.Signature(REGISTER_ADDRESS_BITS)),
        "w": Out(stream.Signature(WriteData)),
        "b": In(stream.Signature(2)),
        "ar": Out(stream.Signature(REGISTER_ADDRESS_BITS)),
        "r": In(stream.Signature(ReadData)),
    }
)
"""The five channels of AXI4-Lite, as the master sees them."""


class Node(wiring.Component):
    """A bump in the wire that sums.

    The node handles frames for the engine, ARP requests for its address and echo requests to it;
    everything else passes to the host unchanged and in order. The host's frames leave between the
    node's own. Nothing ever stalls `rx`; a frame that the host does not take in time is dropped
    whole and counted. When `tx` is not taken for `link_timeout` cycles, the link counts as down:
    the engine's frames are discarded, and the host's when its buffer is full, until it is taken.
    Frames that a reset cuts off are dropped or ended, at all four streams.

    Latency, with H the beats of headers (1 at 512 bits, 11 at 32): each beat reaches the engine
    6 + H cycles after `rx`. From a frame's last beat on `rx` to its first on `host_rx` it takes
    8 + H cycles, and from its last on `host_tx` to its first on `tx` 3, if nothing is in the way;
    from the engine to `tx` 1. Throughput: one beat in each cycle on each of the four streams.

    Args:
        parameters: Sizes.
        managed: The host is the management of a board: only frames that it may have a use for pass
            to it (`Classify`); the others count as `host_off`.
        port_counters: With the registers `registers.PORT_REGISTERS`.

    Members:
        rx: Frames from the network, without frame check sequence.
        tx: Frames for the network; `error`, with `last`, marks one that is cut off.
        host_rx: Frames for the host; `error`, with `last`, marks one that is cut off.
        host_tx: Frames from the host; `error`, with `last`, has the frame dropped.
        axil: Registers of the engine and, from `registers.NODE_BASE` on, of the node.
        idle: Nothing of any frame is left inside. Byte and frame counts follow within 2 cycles.
        port_rx_dropped, port_tx_cut: With `port_counters`: what these registers show.
    """

    def __init__(
        self, parameters: NodeParameters, *, managed: bool = False, port_counters: bool = False
    ) -> None:
        self._parameters = parameters
        self._managed = managed
        self._port_registers = registers.PORT_REGISTERS if port_counters else ()
        beat = PacketBeat(parameters.engine.bus_bits, parameters.engine.ports)
        super().__init__(
            {
                "rx": In(stream.Signature(beat, always_ready=True)),
                "tx": Out(stream.Signature(beat)),
                "host_rx": Out(stream.Signature(beat)),
                "host_tx": In(stream.Signature(beat)),
                "axil": In(AXI_LITE),
                "idle": Out(1),
                **({name: In(32) for name in registers.PORT_COUNTERS} if port_counters else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        bits, ports = p.engine.bus_bits, p.engine.ports
        m.submodules.engine = engine = Engine(p.engine)
        m.submodules.control = control = NodeControl(p)
        m.submodules.classify = classify = Classify(p.engine, managed=self._managed)
        m.submodules.arp = arp = Arp(bus_bits=bits, ports=ports)
        m.submodules.echo = echo = Echo(
            bus_bits=bits,
            buffer_bytes=p.echo_buffer_bytes,
            ports=ports,
            short_steps=bool(p.engine.ram_output_register),
        )
        m.submodules.to_host = to_host = PacketFifo(
            bus_bits=bits, depth_bytes=p.host_buffer_bytes, lossy=True, ports=ports
        )
        m.submodules.from_host = from_host = PacketFifo(
            bus_bits=bits, depth_bytes=p.host_buffer_bytes, lossy=False, ports=ports
        )
        m.submodules.egress = egress = Egress(
            bus_bits=bits,
            sources=4,
            ports=ports,
            frame_beats_max=max(p.host_buffer_bytes, p.echo_buffer_bytes) // p.engine.bus_bytes,
        )
        self._registers(m, engine, control)

        # From the network.
        m.submodules.rx_frames = rx = WholeFrames(bus_bits=bits, ports=ports)
        m.submodules.host_tx_frames = host_tx = WholeFrames(bus_bits=bits, ports=ports)
        connect(m, flipped(self.host_tx), host_tx.i)
        m.d.comb += [
            rx.i.payload.eq(self.rx.payload),
            rx.i.valid.eq(self.rx.valid),
            classify.i.payload.eq(rx.o.payload),
            classify.i.valid.eq(rx.o.valid),
            rx.o.ready.eq(1),
            classify.host_path.eq(control.host_path),
        ]
        m.d.comb += [part.local.eq(engine.local) for part in (classify, arp, echo)]
        for part, destination in (
            (engine.rx, Destination.ENGINE),
            (to_host.i, Destination.HOST),
            (arp.i, Destination.ARP),
            (echo.i, Destination.ECHO),
        ):
            m.d.comb += [
                part.payload.eq(classify.o.payload),
                part.valid.eq(classify.o.valid & (classify.o_to == destination)),
            ]
        connect(m, to_host.o, flipped(self.host_rx))

        # From the host. The switch takes effect between frames only.
        in_frame, was_off, off = Signal(), Signal(), Signal()
        m.d.comb += [
            off.eq(Mux(in_frame, was_off, ~control.host_path)),
            from_host.i.payload.eq(host_tx.o.payload),
            from_host.i.valid.eq(host_tx.o.valid & ~off),
            host_tx.o.ready.eq(from_host.i.ready | off),
        ]
        taken = host_tx.o.valid & host_tx.o.ready
        with m.If(taken):
            m.d.sync += [in_frame.eq(~host_tx.o.payload.last), was_off.eq(off)]

        # To the network.
        sources = [engine.tx, from_host.o, arp.o, echo.o]
        if p.engine.ram_output_register:
            # Whether ARP's turn comes depends on all others: too late for its queue to look at.
            m.submodules.arp_skid = skid = SkidBuffer(PacketBeat(bits, ports))
            connect(m, arp.o, skid.i)
            sources[2] = skid.o
        for source, i in zip(sources, egress.i, strict=True):
            connect(m, source, i)
        connect(m, egress.o, flipped(self.tx))
        m.submodules.link_watch = watch = LinkWatch(cycles=p.engine.link_timeout)
        m.d.comb += [
            watch.valid.eq(self.tx.valid),
            watch.ready.eq(self.tx.ready),
            engine.link_down.eq(watch.down),
            engine.link_watched.eq(1),
            from_host.blocked.eq(watch.down),
        ]
        for port, part in ((self.tx, egress), (self.host_rx, to_host)):
            m.submodules += (cut := CutByReset())
            m.d.comb += [
                cut.taken.eq(port.valid & port.ready),
                cut.last.eq(port.payload.last),
                part.cut.eq(cut.cut),
            ]

        # The outcome of each frame.
        m.submodules.meter_in = meter_in = FrameMeter(bus_bits=bits)
        m.submodules.meter_out = meter_out = FrameMeter(bus_bits=bits)
        ended, bad = Signal(), Signal()
        m.d.comb += [
            ended.eq(classify.o.valid & classify.o.payload.last),
            bad.eq(classify.o.payload.error),
            control.to_engine.eq(ended & (classify.o_to == Destination.ENGINE)),
            control.bad_frames.eq(ended & (classify.o_to != Destination.ENGINE) & bad),
            control.to_host.eq(to_host.committed),
            control.host_overflow.eq(to_host.overflowed),
            control.host_off.eq(ended & (classify.o_to == Destination.NOBODY) & ~bad),
            control.arp_replies.eq(arp.replied),
            control.echo_replies.eq(echo.replied),
            control.echo_bad.eq(echo.bad),
            control.replies_dropped.eq(arp.dropped + echo.dropped),
            control.from_host.eq(from_host.committed),
            control.from_host_oversize.eq(from_host.overflowed & ~from_host.gave_way),
            control.from_host_discarded.eq(from_host.gave_way),
            control.from_host_bad.eq(from_host.refused),
            control.from_host_off.eq(taken & off & host_tx.o.payload.last),
            meter_in.payload.eq(rx.o.payload),
            meter_in.taken.eq(rx.o.valid),
            meter_out.payload.eq(self.tx.payload),
            # The beat that ends a cut frame is not counted, and so neither is the frame.
            meter_out.taken.eq(self.tx.valid & self.tx.ready & ~self.tx.payload.error),
            control.network_frames_in.eq(meter_in.frames),
            control.network_bytes_in.eq(meter_in.bytes),
            control.network_frames_out.eq(meter_out.frames),
            control.network_bytes_out.eq(meter_out.bytes),
        ]
        parts = (engine, classify, arp, echo, to_host, from_host, egress)
        m.d.comb += self.idle.eq(Cat(part.idle for part in parts).all())
        return m

    def _registers(self, m: Module, engine: Engine, control: NodeControl) -> None:
        every = (*registers.REGISTERS, *registers.NODE_REGISTERS, *self._port_registers)
        counters = [
            *(registers.counter_address(counter.name) for counter in registers.COUNTERS),
            *(registers.node_counter_address(counter.name) for counter in registers.NODE_COUNTERS),
        ]
        m.submodules.axi_lite = slave = AxiLite(
            address_bits=REGISTER_ADDRESS_BITS,
            readable=[
                *(register.address for register in every),
                *(address + half for address in counters for half in (0, 4)),
            ],
            writable=[register.address for register in every if register.access.writable],
        )
        for name in ("aw", "w", "ar", "b", "r"):
            connect(m, flipped(getattr(self.axil, name)), getattr(slave, name))
        for_node, was_for_node = Signal(), Signal()
        m.d.comb += [
            for_node.eq(slave.address >= registers.NODE_BASE),
            engine.register_address.eq(Mux(for_node, 0, slave.address)),
            engine.register_write.eq(slave.write & ~for_node),
            engine.register_write_data.eq(slave.write_data),
            control.address.eq(slave.address),
            control.write.eq(slave.write & for_node),
            control.write_data.eq(slave.write_data),
            slave.refused.eq(engine.register_refused),
        ]
        m.d.sync += was_for_node.eq(for_node)
        found = Mux(was_for_node, control.read_data, engine.register_read_data)
        if self._port_registers:
            of_port, shown = Signal(), Signal(32)
            m.d.sync += of_port.eq(0)
            with m.Switch(slave.address):
                for register in self._port_registers:
                    with m.Case(register.address):
                        value = getattr(self, register.name, registers.PORT_IDENTITY)
                        m.d.sync += [of_port.eq(1), shown.eq(value)]
            found = Mux(of_port, shown, found)
        m.d.comb += slave.read_data.eq(found)
