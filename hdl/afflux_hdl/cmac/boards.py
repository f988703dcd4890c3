"""Alveo cards: their parts, and where their first QSFP28 cage is."""

from dataclasses import dataclass

__all__ = ["BOARDS", "Board"]


@dataclass(frozen=True, kw_only=True)
class Board:
    """One card.

    Attributes:
        name: As on the command line.
        part: Vivado's name of the part.
        speed: Its speed grade, in words.
        core: Site of the CMAC beside the cage's transceivers.
        lanes: Sites of the four transceivers, in the order of lanes.
        refclk_mhz: Their reference clock.
        refclk_pins: Its pins, positive and negative.
    """

    name: str
    part: str
    speed: str
    core: str
    lanes: tuple[str, str, str, str]
    refclk_mhz: float
    refclk_pins: tuple[str, str]


def _lanes(column: int, first: int) -> tuple[str, str, str, str]:
    one, two, three, four = (f"X{column}Y{first + n}" for n in range(4))
    return one, two, three, four


BOARDS = {
    board.name: board
    for board in (
        Board(
            name="au50",
            part="xcu50-fsvh2104-2-e",
            speed="-2",
            core="CMACE4_X0Y4",
            lanes=_lanes(0, 28),
            refclk_mhz=161.1328125,
            refclk_pins=("N36", "N37"),
        ),
        Board(
            name="au55c",
            part="xcu55c-fsvh2892-2L-e",
            speed="-2L",
            core="CMACE4_X0Y3",
            lanes=_lanes(0, 24),
            refclk_mhz=161.1328125,
            refclk_pins=("AD42", "AD43"),
        ),
        Board(
            name="au200",
            part="xcu200-fsgd2104-2-e",
            speed="-2",
            core="CMACE4_X0Y6",
            lanes=_lanes(1, 48),
            refclk_mhz=156.25,
            refclk_pins=("M11", "M10"),
        ),
        Board(
            name="au250",
            part="xcu250-figd2104-2l-e",
            speed="-2L",
            core="CMACE4_X0Y8",
            lanes=_lanes(1, 44),
            refclk_mhz=156.25,
            refclk_pins=("M11", "M10"),
        ),
        Board(
            name="au280",
            part="xcu280-fsvh2892-2L-e",
            speed="-2L",
            core="CMACE4_X0Y6",
            lanes=_lanes(0, 40),
            refclk_mhz=156.25,
            refclk_pins=("T42", "T43"),
        ),
    )
}
"""By name. Sites and clocks are those that the OpenNIC shell uses for the first cage."""
