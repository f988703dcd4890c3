"""The tops: an appliance with the pins of a board with an ECP5, and the same with bare clocks.

`Ecp5Top` is what a bitstream is made of; `generate_top(board, …)` returns its Verilog.
`RgmiiAppliance` is the same design from RGMII pins to RGMII pins with its clocks as pins, for
simulation; `generate_appliance(board, …)` returns its Verilog.

To simulate them with Verilator, add `sim/afflux_sim/rtl/ecp5_cells.v`, which has models of the
primitives. RXD is sampled at the edges of RXC, so change it a quarter of a cycle away from them.
TXD changes with the edges of TXC, unless AFFLUX_DELAYS is defined and Verilator called with
`--timing`: then TXC comes `tx_clock_delay_ps` later. Ports of `afflux_rgmii`:

=========================  =====================================================================
`clk`, `clk125`            clock of the engine; 125 MHz. Any phases
`rst`                      synchronous to `clk`; resets all three domains. It may stay 0: registers
                           have initial values, as in the part
`rgmii_rx_clk`             RXC; data and control (`rgmii_rx_ctl`, `rgmii_rx_data`) at both edges
`rgmii_tx_clk`             TXC, with `rgmii_tx_ctl` and `rgmii_tx_data`
`entropy`                  bits of no clock for the management; 0 for ever gives no session
`configured`, `link`       status
`authenticated`, `frame`,  pulses of `clk`
`reset`, `fault`,
`overflowed`
=========================  =====================================================================

A design for two PHYs has the pins of the second one too, under names that end with `_1`.

**Clocks and start.** The board's oscillator goes through a PLL: 125 MHz for `tx`, 50 MHz or so for
`sync`. RXC clocks `rx`. No clock runs (`DCCA`) before the part's internal oscillator has
counted `START_CYCLES`, 27 ms, and the PLL is locked; the PHY's reset ends after the first half. An
ECP5 wakes up with each register at its initial value, which is its reset value here, so no reset
goes to thousands of registers, and none is needed: the start is as good as a reset of any length
(`docs/hardware.md`, section 2). The clocks' start is glitch-free (Lattice FPGA-TN-02200, "dynamic
clock control").

**Reset while running**, when the controller asks for it, goes over the part's own net for that
(`SGSR`), as it does in Amaranth's own platform for the ECP5, for eight cycles of `sync`. It reaches
all registers of all clock domains at once; memories keep their content, which nothing relies on. It
ends in step with `sync`. In `tx` all is idle then and stays so until a frame comes. In `rx` a frame
may be passing; whatever a register takes of it there is gone with that frame's end, as its check
sequence shows.

Tested: `tests/hdl/test_boards_top.py`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    Instance,
    Module,
    Signal,
)
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer

from afflux_hdl.boards.board import Board, Pin, pins_of
from afflux_hdl.boards.pll import Pll
from afflux_hdl.boards.port import PINS_IN, PINS_OUT, RgmiiPort, of_port
from afflux_hdl.boards.status_leds import StatusLeds
from afflux_hdl.lib.top_level import TopLevel
from afflux_hdl.node.parameters import NodeParameters

__all__ = [
    "APPLIANCE_MODULE",
    "TOP_MODULE",
    "Ecp5Top",
    "RgmiiAppliance",
    "generate_appliance",
    "generate_top",
    "pin_names",
    "top_pins",
]

TOP_MODULE, APPLIANCE_MODULE = "afflux_board", "afflux_rgmii"
"""Names of the Verilog modules."""

OSCILLATOR_DIVIDER = 4
"""Of the internal oscillator, 310 MHz or some: 77.5 MHz."""

START_BITS = 21
START_CYCLES = 1 << START_BITS

RESET_CYCLES = 8

STATUS = ("configured", "authenticated", "fault", "reset", "link", "frame", "overflowed")


class RgmiiAppliance(TopLevel):
    """The appliance from RGMII pins to RGMII pins, with its clocks as pins: see the module."""

    def __init__(
        self, node: NodeParameters, management: Any, *, tx_clock_delay_ps: int = 0
    ) -> None:
        super().__init__()
        self._node = node
        self._management = management
        self._tx_clock_delay_ps = tx_clock_delay_ps
        self.clk125 = Signal()
        self._ports = range(node.engine.ports)
        for port in self._ports:
            for name, width in ({"rx_clk": 1} | PINS_IN | PINS_OUT).items():
                pin = f"rgmii_{of_port(name, port)}"
                setattr(self, pin, Signal(width, name=pin))
        self.entropy = Signal()
        for name in STATUS:
            setattr(self, name, Signal(name=name))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reset = self.drive_clock(m)
        clocks = {"tx": self.clk125}
        for port in self._ports:
            clocks[of_port("rx", port)] = getattr(self, f"rgmii_{of_port('rx_clk', port)}")
        m.domains += [ClockDomain(domain, async_reset=True) for domain in clocks]
        m.d.comb += [ClockSignal(domain).eq(clock) for domain, clock in clocks.items()]
        for domain in clocks:
            m.submodules += ResetSynchronizer(reset, domain=domain)
        m.submodules.port = port = RgmiiPort(
            self._node, self._management, tx_clock_delay_ps=self._tx_clock_delay_ps
        )
        for name in pin_names(PINS_IN, self._ports):
            m.d.comb += getattr(port, f"pin_{name}").eq(getattr(self, f"rgmii_{name}"))
        for name in pin_names(PINS_OUT, self._ports):
            m.d.comb += getattr(self, f"rgmii_{name}").eq(getattr(port, f"pin_{name}"))
        for name in STATUS:
            m.d.comb += getattr(self, name).eq(getattr(port, name))
        m.d.comb += port.entropy.eq(self.entropy)
        return m


class Ecp5Top(TopLevel):
    """The design with the pins of a board; the names of its ports are those of `top_pins`."""

    def __init__(self, board: Board, node: NodeParameters, management: Any) -> None:
        # Not TopLevel's: there are neither its clock nor its reset.
        self._board = board
        self._node = node
        self._ports = range(node.engine.ports)
        self._management = management
        for name, pins in top_pins(board, node.engine.ports):
            setattr(self, name, Signal(len(pins), name=name))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        board = self._board
        m.domains += [
            ClockDomain(name, reset_less=True, local=False)
            for name in ("osc", "sync", "tx", *pin_names(["rx"], self._ports))
        ]
        m.submodules.oscillator = Instance(
            "OSCG", p_DIV=OSCILLATOR_DIVIDER, o_OSC=ClockSignal("osc")
        )
        # The start: first the PHY, then, if the PLL is locked, all clocks.
        locked, steady, started = Signal(), Signal(), Signal()
        count = Signal(START_BITS)
        m.submodules.locked = FFSynchronizer(locked, steady, o_domain="osc")
        with m.If(~count.all()):
            m.d.osc += count.eq(count + 1)
        m.d.osc += started.eq(started | (count.all() & steady))
        phy_awake = Signal()
        m.d.osc += phy_awake.eq(phy_awake | count[-1])
        fast, slow = Signal(), Signal()
        m.submodules.pll = Pll.of(board.oscillator[1], board.clock_mhz(len(self._ports))).instance(
            clock=self._pin("clock"), ethernet=fast, engine=slow, locked=locked
        )
        received = [
            (of_port("rx", port), self._pin(f"rgmii_{of_port('rx_clk', port)}"))
            for port in self._ports
        ]
        for domain, clock in (("sync", slow), ("tx", fast), *received):
            m.submodules[f"{domain}_gate"] = Instance(
                "DCCA", i_CLKI=clock, i_CE=started, o_CLKO=ClockSignal(domain)
            )

        m.submodules.port = port = RgmiiPort(
            self._node,
            self._management,
            rx_delay_ps=board.rx_delay_ps,
            tx_clock_delay_ps=board.tx_clock_delay_ps,
            inband_status=board.inband_status,
        )
        for name in pin_names(PINS_IN, self._ports):
            m.d.comb += getattr(port, f"pin_{name}").eq(self._pin(f"rgmii_{name}"))
        for name in pin_names(PINS_OUT, self._ports):
            m.d.comb += self._pin(f"rgmii_{name}").eq(getattr(port, f"pin_{name}"))
        # The internal oscillator itself is sampled, by the management's own synchroniser.
        m.d.comb += port.entropy.eq(ClockSignal("osc"))
        self._reset(m, port.reset)

        m.submodules.leds = leds = StatusLeds()
        m.d.comb += [
            leds.has_address.eq(port.configured),
            leds.has_link.eq(port.link),
            leds.frame.eq(port.frame),
            leds.faulty.eq(port.fault | port.overflowed),
        ]
        for name, pins in top_pins(board, len(self._ports)):
            purpose = name.removeprefix("led_")
            if name.startswith("led_"):
                m.d.comb += self._pin(name).eq(getattr(leds, purpose) ^ pins[0].inverted)
            elif name.startswith("phy_reset"):
                m.d.comb += self._pin(name).eq(~phy_awake ^ pins[0].inverted)
        return m

    def _reset(self, m: Module, asked: Signal) -> None:
        # These registers are not reset by what they drive.
        stages = Signal(RESET_CYCLES)
        for n in range(RESET_CYCLES):
            m.submodules[f"reset_{n}"] = Instance(
                "TRELLIS_FF",
                p_GSR="DISABLED",
                p_CEMUX="1",
                p_CLKMUX="CLK",
                p_LSRMUX="LSR",
                p_REGSET="RESET",
                i_CLK=ClockSignal("sync"),
                i_LSR=Const(0),
                i_CE=Const(1),
                i_DI=Cat(asked, stages[:-1])[n],
                o_Q=stages[n],
            )
        m.submodules.reset = Instance("SGSR", i_CLK=ClockSignal("sync"), i_GSR=~stages.any())

    def _pin(self, name: str) -> Signal:
        signal: Signal = getattr(self, name)
        return signal


def pin_names(names: Iterable[str], ports: Iterable[int]) -> list[str]:
    """Return the names of pins or domains of several ports."""
    return [of_port(name, port) for port in ports for name in names]


def top_pins(board: Board, ports: int = 1) -> Iterator[tuple[str, list[Pin]]]:
    """Yield the ports of the top, with the pins of each, in a fixed order.

    Raises:
        ValueError: If the board does not have as many network ports.
    """
    board.clock_mhz(ports)
    yield "clock", pins_of(board.platform, board.oscillator[0], 0)[""]
    resets: dict[str, str] = {}
    for port in range(ports):
        rgmii = pins_of(board.platform, "eth_rgmii", board.rgmii + port)
        for name in ("rx_clk", *PINS_IN, *PINS_OUT):
            more = dict(board.rgmii_attributes.get(name, ()))
            yield (
                f"rgmii_{of_port(name, port)}",
                [
                    Pin(pin.site, pin.inverted, tuple({**dict(pin.attributes), **more}.items()))
                    for pin in rgmii[name]
                ],
            )
        # PHYs may share their reset.
        if rgmii["rst"][0].site not in resets:
            resets[rgmii["rst"][0].site] = name = of_port("phy_reset", port)
            yield name, rgmii["rst"]
    for purpose, (resource, number, signal) in board.leds.items():
        yield f"led_{purpose}", pins_of(board.platform, resource, number)[signal]


def generate_top(board: Board, node: NodeParameters, management: Any) -> str:
    """Return the Verilog of a board's top, module `afflux_board`."""
    return Ecp5Top(board, node, management).to_verilog(TOP_MODULE)


def generate_appliance(node: NodeParameters, management: Any, *, tx_clock_delay_ps: int = 0) -> str:
    """Return the Verilog of the appliance with bare clocks, module `afflux_rgmii`."""
    top = RgmiiAppliance(node, management, tx_clock_delay_ps=tx_clock_delay_ps)
    return top.to_verilog(APPLIANCE_MODULE)
