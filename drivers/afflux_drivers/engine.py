"""What an engine is to the software around it: frames in, frames out, registers."""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Engine"]


class Engine(Protocol):
    """An aggregation engine behind a network that carries Ethernet frames.

    Attributes:
        name: What it is, such as "soft" or "rtl".
    """

    name: str

    def play(self, frames: Sequence[bytes]) -> list[bytes]:
        """Takes whole frames without check sequence, runs until idle, and gives all it sends."""

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Like `play`, but may keep the last answers back until the next `feed` or `play`."""

    def read(self, address: int) -> int:
        """Reads a 32-bit register; see `afflux_hdl.contract.registers`."""

    def write(self, address: int, value: int) -> None:
        """Writes a 32-bit register."""

    def close(self) -> None:
        """Frees what the engine holds."""
