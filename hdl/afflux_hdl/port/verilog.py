"""Verilog of the node behind a MAC: AXI4-Streams in the MAC's clocks, and plain names.

Two kinds: with a management the board needs no host, and is configured over UDP
(`afflux_hdl.management`); without one the host's streams and the registers have ports of their own,
for a shell that has PCIe.

Tested: `tests/sim/test_cocotb_port.py`, `tests/hdl/test_port_management.py`,
`tests/hdl/test_vivado.py`.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, ClockDomain, Module, Signal
from amaranth.lib.cdc import AsyncFFSynchronizer
from amaranth.lib.wiring import connect

from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.lib.top_level import RESET_FANOUT, TopLevel
from afflux_hdl.lib.width import Narrow, Widen
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port.node_port import NodePort

__all__ = ["PORT_MODULE", "PortParameters", "PortTop", "generate_port"]

PORT_MODULE = "afflux_port"
"""Name of the Verilog module."""

MANAGEMENT_BITS = 32
"""Width of the management's packet streams."""

RESET_CYCLES = 8
"""Of the reset that the controller orders."""

STATUS = ("configured", "authenticated", "fault")
"""Outputs of the management."""


@dataclass(frozen=True, kw_only=True)
class PortParameters:
    """The sizes of a node behind a MAC.

    Attributes:
        node: Parameters of the node.
        mac_bits: Width of the MAC's streams.
        rx_beats, tx_beats: Depths of the crossings from and to the MAC, in beats of the node.
    """

    node: NodeParameters
    mac_bits: int
    rx_beats: int = 64
    tx_beats: int = 512


class PortTop(TopLevel):
    """The node behind a MAC, with plain port names.

    `clk` and `rst` are those of the node. `rst`, `mac_rx_rst` and `mac_tx_rst` may come at any
    time, with no clock or any; they end in step with the clocks that they belong to. The MAC's
    streams are as `mac_streams` describes them: `mac_rx` has no `tready`, `mac_tx_tvalid` stays up
    from a frame's first beat to its last, `tuser` with `tlast` marks bad frames. `rx_dropped` and
    `tx_cut` count frames; `tx_paused`, in the clock of `mac_tx`, must never rise.

    With a management there are `entropy`, and its status outputs: `configured`, `authenticated`,
    which pulses, and `fault`.

    Args:
        parameters: The sizes to build.
        management: The component `afflux_hdl.management.management.Management`, or one with its
            members; None: the host's streams and the registers have ports, as the node's.
    """

    def __init__(self, parameters: PortParameters, management: Any = None) -> None:
        super().__init__()
        self._parameters = parameters
        self._management = management
        bits = parameters.node.engine.bus_bits
        mac_bits = parameters.mac_bits
        stream = {"tdata": mac_bits, "tkeep": mac_bits // 8, "tlast": 1, "tuser": 1, "tvalid": 1}
        self._add("mac_rx", clk=1, rst=1, **stream)
        self._add("mac_tx", clk=1, rst=1, **stream, tready=1)
        if management is None:
            for name in ("host_tx", "host_rx"):
                self._add(name, data=bits, keep=bits // 8, last=1, error=1, valid=1, ready=1)
            address = REGISTER_ADDRESS_BITS
            self._add("s_axil", awaddr=address, awprot=3, awvalid=1, awready=1)
            self._add("s_axil", wdata=32, wstrb=4, wvalid=1, wready=1, bresp=2, bvalid=1, bready=1)
            self._add("s_axil", araddr=address, arprot=3, arvalid=1, arready=1)
            self._add("s_axil", rdata=32, rresp=2, rvalid=1, rready=1)
        else:
            for name in ("entropy", *STATUS):
                setattr(self, name, Signal(name=name))
        self.rx_dropped = Signal(32)
        self.tx_cut = Signal(32)
        self.tx_paused = Signal()
        self.idle = Signal()

    def _add(self, prefix: str, **ports: int) -> None:
        for name, width in ports.items():
            setattr(self, f"{prefix}_{name}", Signal(width, name=f"{prefix}_{name}"))

    def _pin(self, *names: str) -> Signal:
        signal: Signal = getattr(self, "_".join(names))
        return signal

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        asked, ordered, wanted = Signal(), Signal(RESET_CYCLES), Signal()
        m.submodules.rst_sync = AsyncFFSynchronizer(self.rst, asked, o_domain="pins")
        m.d.comb += wanted.eq(asked | ordered.any())
        reset = self.drive_clock(m, wanted, RESET_FANOUT)
        m.submodules.port = port = NodePort(
            p.node,
            mac_bits=p.mac_bits,
            rx_beats=p.rx_beats,
            tx_beats=p.tx_beats,
            managed=self._management is not None,
        )
        for name, stream, mac_reset in (
            ("mac_rx", port.mac_rx, port.mac_rx_reset),
            ("mac_tx", port.mac_tx, port.mac_tx_reset),
        ):
            domain = ClockDomain(name, reset_less=True)
            m.domains += domain
            m.d.comb += domain.clk.eq(self._pin(name, "clk"))
            m.submodules[f"{name}_rst_sync"] = AsyncFFSynchronizer(
                self._pin(name, "rst"), mac_reset, o_domain=name
            )
            for member in stream.signature.members:
                pin, inner = self._pin(name, f"t{member}"), getattr(stream, member)
                inwards = name == "mac_rx" or member == "ready"
                m.d.comb += inner.eq(pin) if inwards else pin.eq(inner)
        m.d.comb += [
            self.rx_dropped.eq(port.rx_dropped),
            self.tx_cut.eq(port.tx_cut),
            self.tx_paused.eq(port.tx_paused),
            self.idle.eq(port.idle),
        ]
        if self._management is None:
            self._host(m, port, reset)
        else:
            self._manage(m, port)
            # The management is reset too, so the order must outlast it.
            m.d.pins += ordered.eq(Cat(self._management.reset, ordered))
        return m

    def _manage(self, m: Module, port: NodePort) -> None:
        bits = self._parameters.node.engine.bus_bits
        m.submodules.management = management = self._management
        if bits == MANAGEMENT_BITS:
            connect(m, port.host_rx, management.i)
            connect(m, management.o, port.host_tx)
        else:
            m.submodules.host_narrow = narrow = Narrow(narrow_bits=MANAGEMENT_BITS, wide_bits=bits)
            # Without a reset, as what follows the frames on both of its sides: else a frame's last
            # beat could be taken here and be gone, and the node would take the next one's for it.
            m.submodules.host_widen = widen = Widen(
                narrow_bits=MANAGEMENT_BITS, wide_bits=bits, domain="pins"
            )
            connect(m, port.host_rx, narrow.i)
            connect(m, narrow.o, management.i)
            connect(m, management.o, widen.i)
            connect(m, widen.o, port.host_tx)
        connect(m, management.axil, port.axil)
        m.d.comb += management.entropy.eq(self._pin("entropy"))
        for name in STATUS:
            m.d.comb += self._pin(name).eq(getattr(management, name))

    def _host(self, m: Module, port: NodePort, reset: Signal) -> None:
        # Whatever is taken under reset would be lost.
        open_ = Signal()
        m.d.comb += open_.eq(~reset)
        for name in ("data", "keep", "last", "error"):
            m.d.comb += [
                port.host_tx.payload[name].eq(self._pin("host_tx", name)),
                self._pin("host_rx", name).eq(port.host_rx.payload[name]),
            ]
        m.d.comb += [
            port.host_tx.valid.eq(self._pin("host_tx", "valid") & open_),
            self._pin("host_tx", "ready").eq(port.host_tx.ready & open_),
            self._pin("host_rx", "valid").eq(port.host_rx.valid),
            port.host_rx.ready.eq(self._pin("host_rx", "ready")),
        ]
        axil = port.axil
        for name in ("aw", "w", "ar"):
            channel = getattr(axil, name)
            m.d.comb += [
                channel.valid.eq(self._pin("s_axil", f"{name}valid")),
                self._pin("s_axil", f"{name}ready").eq(channel.ready & open_),
            ]
        for name in ("b", "r"):
            channel = getattr(axil, name)
            m.d.comb += [
                self._pin("s_axil", f"{name}valid").eq(channel.valid),
                channel.ready.eq(self._pin("s_axil", f"{name}ready")),
            ]
        m.d.comb += [
            axil.aw.payload.eq(self._pin("s_axil", "awaddr")),
            axil.w.payload.data.eq(self._pin("s_axil", "wdata")),
            axil.w.payload.strb.eq(self._pin("s_axil", "wstrb")),
            axil.ar.payload.eq(self._pin("s_axil", "araddr")),
            self._pin("s_axil", "bresp").eq(axil.b.payload),
            self._pin("s_axil", "rdata").eq(axil.r.payload.data),
            self._pin("s_axil", "rresp").eq(axil.r.payload.resp),
        ]


def generate_port(parameters: PortParameters, management: Any = None) -> str:
    """Return the Verilog of the node behind a MAC, with the top module `afflux_port`."""
    return PortTop(parameters, management).to_verilog(PORT_MODULE)
