"""A board as the flow knows it: its part, pins, PHY and size.

Pins come from amaranth-boards. There the control pins of RGMII are called `tx_ctl` and `rx_ctl` at
some connectors and `tx_ctrl` and `rx_ctrl` at others; both are taken.

Tested: `tests/hdl/test_boards_table.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["Board", "Pin", "pins_of", "small_node"]


def small_node(*, workers: int, lanes: int, jobs: int, slots: int) -> NodeParameters:
    """Return the sizes of a node in a small part.

    Its bus has 32 bits, its buffers 2,048 bytes. Words leave the slots' memories by a register:
    behind these block RAMs no clock of a board would leave time to round a number.
    """
    engine = Parameters(
        bus_bits=32, workers=workers, lanes=lanes, jobs=jobs, slots=slots,
        link_timeout=1 << 22, ram_output_register=1,
    )  # fmt: skip
    return NodeParameters(engine=engine, host_buffer_bytes=2048, echo_buffer_bytes=2048)


@dataclass(frozen=True)
class Pin:
    """One pin of the package.

    Attributes:
        site: Its name.
        inverted: High means no.
        attributes: Of the buffer, for nextpnr's constraints.
    """

    site: str
    inverted: bool
    attributes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board with an ECP5 and a gigabit PHY.

    Attributes:
        name: As in `make bitstream BOARD=name`.
        title: For people.
        platform: Class of amaranth-boards: device, package, speed grade, pins.
        oscillator: Resource of the clock, and its frequency in MHz.
        rgmii: Number of the PHY that the engine is at; those of further ports come behind it.
        rx_delay_ps, tx_clock_delay_ps: The delays that the board leaves to the FPGA, see
        `RgmiiEcp5`.
        delays_from: Where these two come from.
        rgmii_attributes: Of some of the PHY's pins, beyond those of amaranth-boards.
        leds: For each purpose in `status_leds.PURPOSES` its LED: resource, number and signal.
        node: The sizes that fit; a 32-bit bus.
        several_ports: Sizes of the engine that are others with several ports, by name.
        engine_mhz: The engine's clock with one port, with two, and so on: as many as there are
            PHYs.
        arguments: For nextpnr: device and what else it takes.
        inband_status: The PHY's report between frames counts, see `RgmiiPort`.
        notes: Notes for users, a sentence each.
    """

    name: str
    title: str
    platform: type
    oscillator: tuple[str, int]
    rgmii: int
    rx_delay_ps: int
    tx_clock_delay_ps: int
    delays_from: str
    leds: Mapping[str, tuple[str, int, str]]
    node: NodeParameters
    engine_mhz: tuple[Fraction, ...]
    arguments: tuple[str, ...]
    several_ports: Mapping[str, int] = field(default_factory=dict)
    rgmii_attributes: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    inband_status: bool = True
    notes: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """Part, such as LFE5U-25F."""
        return str(self.platform.device)  # type: ignore[attr-defined]

    @property
    def package(self) -> str:
        """Package, as nextpnr calls it."""
        return str(self.platform.package).replace("BG", "CABGA")  # type: ignore[attr-defined]

    @property
    def speed(self) -> str:
        """Speed grade, 6 to 8."""
        return str(self.platform.speed)  # type: ignore[attr-defined]

    @property
    def engine(self) -> Parameters:
        """Parameters of the engine."""
        return self.node.engine

    def engine_at(self, ports: int, **sizes: int) -> Parameters:
        """Return the engine's parameters at so many ports: the board's own, but for `sizes`.

        Raises:
            ValueError: If a size cannot be.
        """
        others = self.several_ports if ports > 1 else {}
        return replace(self.engine, **{**others, "ports": ports, **sizes})

    def clock_mhz(self, ports: int) -> Fraction:
        """Return the engine's clock if it is at so many ports.

        Raises:
            ValueError: If the board does not have as many.
        """
        most = len(self.engine_mhz)
        if not 1 <= ports <= most:
            raise ValueError(
                f"{self.name} has {most} network port{'s' * (most > 1)}: ports cannot be {ports}"
            )
        return self.engine_mhz[ports - 1]


def pins_of(platform: type, name: str, number: int) -> dict[str, list[Pin]]:
    """Return the pins of a resource of amaranth-boards by the names of its signals.

    A resource that is a single signal has it under the empty name. Of a differential pair, the
    positive pin is returned: nextpnr finds the other one by the kind of its buffer.

    Raises:
        ValueError: If the platform has no such resource.
    """
    for resource in platform.resources:  # type: ignore[attr-defined]
        if (resource.name, resource.number) == (name, number):
            break
    else:
        raise ValueError(f"{platform.__name__} has no resource {name} {number}")
    found: dict[str, list[Pin]] = {}

    def visit(signal: Any, path: str, attributes: dict[str, str]) -> None:
        mine = {**attributes, **{key: str(value) for key, value in signal.attrs.items()}}
        for io in signal.ios:
            if hasattr(io, "ios") or hasattr(io, "attrs"):
                visit(io, io.name.replace("_ctrl", "_ctl"), mine)
                continue
            if hasattr(io, "names"):
                sites, inverted = io.names, io.invert
            elif hasattr(io, "p"):
                sites, inverted = io.p.names, io.invert
            else:  # a clock's frequency
                continue
            found[path] = [Pin(site, bool(inverted), tuple(mine.items())) for site in sites]

    visit(resource, "", {})
    return found
