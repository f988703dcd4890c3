"""Write the engine out as Verilog.

The top level has the plain names of AXI4-Stream on both sides, so that simulators, MACs and shells
connect to it without knowing Amaranth.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from amaranth.hdl import Module, Signal

from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.frame_boundary import CutByReset, WholeFrames
from afflux_hdl.lib.top_level import TopLevel

__all__ = ["MODULE", "Top", "follow_frames", "generate"]

MODULE = "afflux_engine"
"""Name of the Verilog module."""


def follow_frames(m: Module, engine: Engine, *, bus_bits: int, ports: int = 1) -> Any:
    """Follow frames through resets at both ends of an engine; return the stream of frames to it."""
    m.submodules.rx = rx = WholeFrames(bus_bits=bus_bits, ports=ports)
    m.submodules.tx_cut = tx_cut = CutByReset()
    m.d.comb += [
        engine.rx.payload.eq(rx.o.payload),
        engine.rx.valid.eq(rx.o.valid),
        rx.o.ready.eq(1),
        tx_cut.taken.eq(engine.tx.valid & engine.tx.ready),
        tx_cut.last.eq(engine.tx.payload.last),
        engine.tx_cut.eq(tx_cut.cut),
    ]
    return rx.i


class Top(TopLevel):
    """The engine with plain port names.

    Byte 0 of a frame is in the low bits of the first beat; `rx_keep` is contiguous and all ones
    but in the last beat; `rx_error`, with `rx_last`, marks a frame that the MAC found to be
    bad. `rx_ready` is always 1. `tx_error`, with `tx_last`, marks a frame that is cut off and that
    the MAC must spoil. `rst` is synchronous and acts one cycle later; frames that it cuts off, at
    either side, are dropped or ended with an error. Register data follow one cycle after their
    address, `reg_refused` one cycle after a write that was refused. With several network ports
    `rx_net_ports` and `tx_net_ports` have a bit for each, the same in all beats of a frame.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        bits = parameters.bus_bits
        self._parameters = parameters
        self.rx_data = Signal(bits)
        self.rx_keep = Signal(bits // 8)
        self.rx_last = Signal()
        self.rx_error = Signal()
        self.rx_valid = Signal()
        self.rx_ready = Signal()
        self.tx_data = Signal(bits)
        self.tx_keep = Signal(bits // 8)
        self.tx_last = Signal()
        self.tx_error = Signal()
        self.tx_valid = Signal()
        self.tx_ready = Signal()
        self.reg_address = Signal(REGISTER_ADDRESS_BITS)
        self.reg_write_data = Signal(32)
        self.reg_write = Signal()
        self.reg_read_data = Signal(32)
        self.reg_refused = Signal()
        self.idle = Signal()
        if parameters.ports > 1:
            self.rx_net_ports = Signal(parameters.ports)
            self.tx_net_ports = Signal(parameters.ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.drive_clock(m)
        m.submodules.engine = engine = Engine(self._parameters)
        p = self._parameters
        rx = follow_frames(m, engine, bus_bits=p.bus_bits, ports=p.ports)
        m.d.comb += [
            rx.payload.data.eq(self.rx_data),
            rx.payload.keep.eq(self.rx_keep),
            rx.payload.last.eq(self.rx_last),
            rx.payload.error.eq(self.rx_error),
            rx.valid.eq(self.rx_valid),
            self.rx_ready.eq(rx.ready),
            self.tx_data.eq(engine.tx.payload.data),
            self.tx_keep.eq(engine.tx.payload.keep),
            self.tx_last.eq(engine.tx.payload.last),
            self.tx_error.eq(engine.tx.payload.error),
            self.tx_valid.eq(engine.tx.valid),
            engine.tx.ready.eq(self.tx_ready),
            engine.register_address.eq(self.reg_address),
            engine.register_write.eq(self.reg_write),
            engine.register_write_data.eq(self.reg_write_data),
            self.reg_read_data.eq(engine.register_read_data),
            self.reg_refused.eq(engine.register_refused),
            self.idle.eq(engine.idle),
        ]
        if p.ports > 1:
            m.d.comb += [
                rx.payload.net_ports.eq(self.rx_net_ports),
                self.tx_net_ports.eq(engine.tx.payload.net_ports),
            ]
        return m


def generate(parameters: Parameters) -> str:
    """Return the Verilog of the engine, one text, with the top module `afflux_engine`."""
    return Top(parameters).to_verilog(MODULE)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: `python -m afflux_hdl.engine.verilog -o DIR`."""
    defaults = Parameters()
    parser = argparse.ArgumentParser(description="Write the engine out as Verilog.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write into")
    for name in (field.name for field in fields(Parameters)):
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=int, default=getattr(defaults, name))
    options = parser.parse_args(arguments)
    values = {name: value for name, value in vars(options).items() if name != "output"}
    try:
        parameters = Parameters(**values)
    except ValueError as error:
        sys.exit(f"error: {error}")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{MODULE}.v"
    path.write_text(generate(parameters))
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
