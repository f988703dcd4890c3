"""Alveo cards: their parts, their ports, and where the first QSFP28 cage is."""

from dataclasses import dataclass

__all__ = ["ALVEO", "Alveo", "Cage"]


@dataclass(frozen=True, kw_only=True)
class Cage:
    """A QSFP28 cage, and the part of the FPGA behind it.

    Attributes:
        core: Site of the CMAC beside the cage's transceivers.
        lanes: Sites of the four transceivers, in the order of lanes.
        refclk_hz: Their reference clock.
        refclk_pins: Its pins, positive and negative.
    """

    core: str
    lanes: tuple[str, str, str, str]
    refclk_hz: float
    refclk_pins: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Alveo:
    """A card.

    Attributes:
        name: As on the command line, and as the OpenNIC shell calls it.
        part: Vivado's name of the FPGA, with package and speed grade.
        ports: Its 100-Gbit/s ports.
        cage: The first one.
    """

    name: str
    part: str
    ports: int
    cage: Cage


def _cage(
    core: str, column: int, first: int, refclk_hz: float, refclk_pins: tuple[str, str]
) -> Cage:
    one, two, three, four = (f"X{column}Y{first + n}" for n in range(4))
    lanes = one, two, three, four
    return Cage(core=core, lanes=lanes, refclk_hz=refclk_hz, refclk_pins=refclk_pins)


ALVEO = {
    card.name: card
    for card in (
        Alveo(
            name="au50",
            part="xcu50-fsvh2104-2-e",
            ports=1,
            cage=_cage("CMACE4_X0Y4", 0, 28, 161_132_812.5, ("N36", "N37")),
        ),
        Alveo(
            name="au55c",
            part="xcu55c-fsvh2892-2L-e",
            ports=2,
            cage=_cage("CMACE4_X0Y3", 0, 24, 161_132_812.5, ("AD42", "AD43")),
        ),
        Alveo(
            name="au200",
            part="xcu200-fsgd2104-2-e",
            ports=2,
            cage=_cage("CMACE4_X0Y6", 1, 48, 156_250_000, ("M11", "M10")),
        ),
        Alveo(
            name="au250",
            part="xcu250-figd2104-2l-e",
            ports=2,
            cage=_cage("CMACE4_X0Y8", 1, 44, 156_250_000, ("M11", "M10")),
        ),
        Alveo(
            name="au280",
            part="xcu280-fsvh2892-2L-e",
            ports=2,
            cage=_cage("CMACE4_X0Y6", 0, 40, 156_250_000, ("T42", "T43")),
        ),
    )
}
"""By name. Parts, sites and clocks are those that the OpenNIC shell uses."""
