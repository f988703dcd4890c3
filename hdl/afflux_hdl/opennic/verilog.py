"""Write the box out as Verilog, with the port names of the shell's `box_250mhz`."""

from amaranth.hdl import Cat, ClockDomain, DomainRenamer, Module, Signal, Value
from amaranth.lib import stream

from afflux_hdl.lib.synchroniser import Synchroniser
from afflux_hdl.lib.top_level import RESET_FANOUT, PlainPorts
from afflux_hdl.opennic.box import Box
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.streams import BUS_BITS

__all__ = ["BOX_MODULE", "STREAMS", "STREAM_WIDTHS", "BoxTop", "generate_box"]

BOX_MODULE = "afflux_box_250mhz"
"""Name of the Verilog module."""

RESET_STAGES = 1
"""Registers from where a reset has crossed to the first that it resets.

The last of them may be copied, which one in a synchroniser may not. `RequestCrossing` says how late
a reset of the nodes may be: this and the crossing are 4 of 5 cycles.
"""

STREAMS = {
    "h2c": "s_axis_qdma_h2c",
    "c2h": "m_axis_qdma_c2h",
    "tx": "m_axis_adap_tx_250mhz",
    "rx": "s_axis_adap_rx_250mhz",
}
"""The shell's names for the streams of `Box`."""

STREAM_WIDTHS = {
    "tvalid": 1,
    "tdata": BUS_BITS,
    "tkeep": BUS_BITS // 8,
    "tlast": 1,
    "tuser_size": 16,
    "tuser_src": 16,
    "tuser_dst": 16,
    "tready": 1,
}
"""The shell's signals of a stream. Those of several streams lie side by side, stream 0 lowest."""


class BoxTop(PlainPorts):
    """The box with the shell's port names.

    `node_rstn` and `shell_rstn` are synchronous to `axil_aclk`, and low for at least 24 of its
    cycles: the first resets the nodes alone, the second everything. `axis_aclk` is at most twice as
    fast as `axil_aclk`.
    """

    def __init__(self, parameters: BoxParameters) -> None:
        self._parameters = parameters
        self.axil_aclk = Signal()
        self.axis_aclk = Signal()
        self.node_rstn = Signal()
        self.shell_rstn = Signal()
        for name, width in (
            *(("awvalid", 1), ("awaddr", 32), ("awready", 1)),
            *(("wvalid", 1), ("wdata", 32), ("wready", 1)),
            *(("bvalid", 1), ("bresp", 2), ("bready", 1)),
            *(("arvalid", 1), ("araddr", 32), ("arready", 1)),
            *(("rvalid", 1), ("rdata", 32), ("rresp", 2), ("rready", 1)),
        ):
            self._add(f"s_axil_{name}", width)
        for stream_name, prefix in STREAMS.items():
            for name, width in STREAM_WIDTHS.items():
                self._add(f"{prefix}_{name}", width * self._count(stream_name))

    def _count(self, stream_name: str) -> int:
        p = self._parameters
        return p.ports if stream_name in ("tx", "rx") else p.functions

    def _add(self, name: str, width: int) -> None:
        setattr(self, name, Signal(width, name=name))

    def _pin(self, name: str) -> Signal:
        signal: Signal = getattr(self, name)
        return signal

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Registers, so that no glitch reaches a synchroniser.
        nodes_reset, shell_reset = Signal(init=1), Signal(init=1)
        outer, sync, shell = (ClockDomain(name) for name in ("outer", "sync", "shell"))
        free = ClockDomain("free", reset_less=True)
        m.domains += [outer, sync, shell, free]
        m.d.comb += [
            outer.clk.eq(self.axil_aclk),
            outer.rst.eq(~self.shell_rstn),
        ]
        m.d.outer += [nodes_reset.eq(~self.node_rstn), shell_reset.eq(0)]
        for domain in (sync, shell, free):
            m.d.comb += domain.clk.eq(self.axis_aclk)
        for name, reset, domain in (
            ("nodes_reset", nodes_reset, sync),
            ("shell_reset", shell_reset, shell),
        ):
            there = Synchroniser(init=1)
            m.submodules[name] = DomainRenamer("free")(there)
            m.d.comb += there.i.eq(reset)
            late = there.o
            for n in range(RESET_STAGES):
                attributes = {"max_fanout": RESET_FANOUT}
                later = Signal(name=f"{name}_{n}", init=1, attrs=attributes)
                m.d.free += later.eq(late)
                late = later
            m.d.comb += domain.rst.eq(late)

        m.submodules.box = box = Box(self._parameters)
        m.d.comb += box.away.eq(nodes_reset)
        for name in STREAMS:
            for n in range(self._count(name)):
                self._connect(m, name, n, getattr(box, name)[n])
        axil = box.axil
        for name, channel in (("aw", axil.aw), ("w", axil.w), ("ar", axil.ar)):
            m.d.comb += [
                channel.valid.eq(self._pin(f"s_axil_{name}valid")),
                self._pin(f"s_axil_{name}ready").eq(channel.ready),
            ]
        for name, channel in (("b", axil.b), ("r", axil.r)):
            m.d.comb += [
                self._pin(f"s_axil_{name}valid").eq(channel.valid),
                channel.ready.eq(self._pin(f"s_axil_{name}ready")),
            ]
        m.d.comb += [
            axil.aw.payload.eq(self._pin("s_axil_awaddr")),
            axil.w.payload.eq(self._pin("s_axil_wdata")),
            axil.ar.payload.eq(self._pin("s_axil_araddr")),
            self._pin("s_axil_bresp").eq(axil.b.payload),
            self._pin("s_axil_rdata").eq(axil.r.payload.data),
            self._pin("s_axil_rresp").eq(axil.r.payload.resp),
        ]
        return m

    def _connect(self, m: Module, name: str, n: int, port: stream.Interface) -> None:
        """Connect stream `n` of those called `name` to its part of the flat vectors."""

        def part(signal: str) -> Value:
            width = STREAM_WIDTHS[signal]
            return self._pin(f"{STREAMS[name]}_{signal}")[width * n : width * (n + 1)]

        payload = port.payload
        pins = Cat(part(signal) for signal in STREAM_WIDTHS if signal not in ("tvalid", "tready"))
        members = Cat(
            *(payload.data, payload.keep, payload.last, payload.size, payload.src, payload.dst)
        )
        if STREAMS[name].startswith("s_"):
            m.d.comb += [
                members.eq(pins),
                port.valid.eq(part("tvalid")),
                part("tready").eq(port.ready),
            ]
        else:
            m.d.comb += [
                pins.eq(members),
                part("tvalid").eq(port.valid),
                port.ready.eq(part("tready")),
            ]


def generate_box(parameters: BoxParameters) -> str:
    """Return the Verilog of the box, one text, with the top module `afflux_box_250mhz`."""
    return BoxTop(parameters).to_verilog(BOX_MODULE)
