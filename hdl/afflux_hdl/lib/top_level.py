"""The common part of the Verilog tops of engine and node."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, Elaboratable, Module, Signal

from afflux_hdl.lib.ram import RAM_VERILOG, REGISTERED_RAM_VERILOG, VERILOG

__all__ = ["RESET_FANOUT", "PlainPorts", "TopLevel"]

RESET_FANOUT = 500
"""Loads of one copy of a reset's register in designs for Vivado.

There is no limit for control signals by default. 20,000 loads make 41 copies, which the register
before them reaches within a cycle wherever they are.
"""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage, which among millions of live objects takes a third."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


class PlainPorts(Elaboratable):
    """A design with plain port names: its ports are those attributes that are signals."""

    @property
    def ports(self) -> list[Signal]:
        """All ports, inputs and outputs."""
        return [value for value in vars(self).values() if isinstance(value, Signal)]

    def to_verilog(self, name: str) -> str:
        """Return the Verilog, one text, with the top module called `name`."""
        with _uncollected():
            text = verilog.convert(
                self,
                name=name,
                platform=VERILOG,
                ports=self.ports,
                # Paths of the machine, with which equal sources would give different texts.
                emit_src=False,
                strip_internal_attrs=True,
            )
        registered = REGISTERED_RAM_VERILOG if "afflux_ram_registered" in text else ""
        return f"{text}{RAM_VERILOG}{registered}"


class TopLevel(PlainPorts):
    """A design with plain port names, one clock and one reset.

    `rst` is synchronous and takes effect one cycle later.
    """

    def __init__(self) -> None:
        self.clk = Signal()
        self.rst = Signal()

    def drive_clock(
        self, m: Module, rst: Signal | None = None, max_fanout: int | None = None
    ) -> Signal:
        """Make the domain `sync` from the pins and return its reset.

        The domain `pins` has the same clock and no reset. `rst` stands for the pin, if it is given.
        With `max_fanout` Vivado copies the reset's register, so that none has more loads.
        """
        domain = ClockDomain("sync")
        # The reset pin goes into a register: it keeps the pin's path short, and saves simulators
        # from evaluating every register's input twice.
        pins = ClockDomain("pins", reset_less=True)
        attributes = {} if max_fanout is None else {"max_fanout": max_fanout}
        reset = Signal(init=1, attrs=attributes)
        m.domains += [domain, pins]
        m.d.pins += reset.eq(self.rst if rst is None else rst)
        m.d.comb += [domain.clk.eq(self.clk), domain.rst.eq(reset), pins.clk.eq(self.clk)]
        return reset
