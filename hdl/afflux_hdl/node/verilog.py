"""Write the node out as Verilog: AXI4-Stream and AXI4-Lite ports with plain names."""

import argparse
import sys
from pathlib import Path

from amaranth.hdl import Module, Signal

from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.lib.top_level import TopLevel
from afflux_hdl.node.node import Node
from afflux_hdl.node.options import add_node_options, node_from_options
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["NODE_MODULE", "NodeTop", "generate_node"]

NODE_MODULE = "afflux_node"
"""Name of the Verilog module."""

STREAMS_IN = ("net_rx", "host_tx")
STREAMS_OUT = ("net_tx", "host_rx")


class NodeTop(TopLevel):
    """The node with plain port names.

    `net_rx` and `host_tx` carry frames in, `net_tx` and `host_rx` out. Byte 0 of a frame is
    in the low bits of the first beat; `keep` is contiguous and all ones but in the last beat;
    `error`, with `last`, marks a frame that is bad, or on the streams out one that is cut off.
    `net_rx_ready` is always 1. `rst` is synchronous and acts one cycle later; until then, and while
    it acts, `host_tx` and the register channels are not ready. Frames that it cuts off, at any of
    the streams, are dropped or ended with an error. With several network ports all four streams
    have `net_ports`, one bit for each, the same in all beats of a frame.
    """

    def __init__(self, parameters: NodeParameters) -> None:
        super().__init__()
        bits, ports = parameters.engine.bus_bits, parameters.engine.ports
        self._parameters = parameters
        for name in (*STREAMS_IN, *STREAMS_OUT):
            self._add(name, data=bits, keep=bits // 8, last=1, error=1, valid=1, ready=1)
            if ports > 1:
                self._add(name, net_ports=ports)
        address = REGISTER_ADDRESS_BITS
        self._add("s_axil", awaddr=address, awprot=3, awvalid=1, awready=1)
        self._add("s_axil", wdata=32, wstrb=4, wvalid=1, wready=1, bresp=2, bvalid=1, bready=1)
        self._add("s_axil", araddr=address, arprot=3, arvalid=1, arready=1)
        self._add("s_axil", rdata=32, rresp=2, rvalid=1, rready=1)
        self.idle = Signal()

    def _add(self, prefix: str, **ports: int) -> None:
        for name, width in ports.items():
            setattr(self, f"{prefix}_{name}", Signal(width, name=f"{prefix}_{name}"))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reset = self.drive_clock(m)
        m.submodules.node = node = Node(self._parameters)
        m.d.comb += self.idle.eq(node.idle)

        members = ["data", "keep", "last", "error"]
        if self._parameters.engine.ports > 1:
            members.append("net_ports")

        def pin(prefix: str, name: str) -> Signal:
            signal: Signal = getattr(self, f"{prefix}_{name}")
            return signal

        # Whatever is taken under reset would be lost.
        open_ = Signal()
        m.d.comb += open_.eq(~reset)
        for prefix, port in (("net_rx", node.rx), ("host_tx", node.host_tx)):
            always = prefix == "net_rx"
            m.d.comb += [
                port.valid.eq(pin(prefix, "valid") & (1 if always else open_)),
                pin(prefix, "ready").eq(1 if always else port.ready & open_),
            ]
            for name in members:
                m.d.comb += port.payload[name].eq(pin(prefix, name))
        for prefix, port in (("net_tx", node.tx), ("host_rx", node.host_rx)):
            m.d.comb += [
                pin(prefix, "valid").eq(port.valid),
                port.ready.eq(pin(prefix, "ready")),
            ]
            for name in members:
                m.d.comb += pin(prefix, name).eq(port.payload[name])
        axil = node.axil
        for name, channel in (("aw", axil.aw), ("w", axil.w), ("ar", axil.ar)):
            m.d.comb += [
                channel.valid.eq(pin("s_axil", f"{name}valid")),
                pin("s_axil", f"{name}ready").eq(channel.ready & open_),
            ]
        for name, channel in (("b", axil.b), ("r", axil.r)):
            m.d.comb += [
                pin("s_axil", f"{name}valid").eq(channel.valid),
                channel.ready.eq(pin("s_axil", f"{name}ready")),
            ]
        m.d.comb += [
            axil.aw.payload.eq(pin("s_axil", "awaddr")),
            axil.w.payload.data.eq(pin("s_axil", "wdata")),
            axil.w.payload.strb.eq(pin("s_axil", "wstrb")),
            axil.ar.payload.eq(pin("s_axil", "araddr")),
            pin("s_axil", "bresp").eq(axil.b.payload),
            pin("s_axil", "rdata").eq(axil.r.payload.data),
            pin("s_axil", "rresp").eq(axil.r.payload.resp),
        ]
        return m


def generate_node(parameters: NodeParameters) -> str:
    """Return the Verilog of the node, one text, with the top module `afflux_node`."""
    return NodeTop(parameters).to_verilog(NODE_MODULE)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: `python -m afflux_hdl.node.verilog -o DIR`."""
    parser = argparse.ArgumentParser(description="Write the node out as Verilog.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write into")
    add_node_options(parser)
    options = parser.parse_args(arguments)
    try:
        parameters = node_from_options(options)
    except ValueError as error:
        sys.exit(f"error: {error}")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{NODE_MODULE}.v"
    path.write_text(generate_node(parameters))
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
