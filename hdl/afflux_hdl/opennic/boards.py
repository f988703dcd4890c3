"""The Alveo cards that the OpenNIC shell has board settings for."""

from dataclasses import dataclass

__all__ = ["ALVEO", "Alveo"]


@dataclass(frozen=True)
class Alveo:
    """A card, as the shell builds for it.

    Attributes:
        part: Of the FPGA, as in the shell's board settings.
        ports: Its 100-Gbit/s ports.
    """

    part: str
    ports: int


ALVEO = {
    "au50": Alveo("xcu50-fsvh2104-2-e", ports=1),
    "au55c": Alveo("xcu55c-fsvh2892-2L-e", ports=2),
    "au200": Alveo("xcu200-fsgd2104-2-e", ports=2),
    "au250": Alveo("xcu250-figd2104-2l-e", ports=2),
    "au280": Alveo("xcu280-fsvh2892-2L-e", ports=2),
}
"""By the shell's names for them."""
