"""Reads and writes of registers, wherever they are: in this process, on a bus, over a network."""

from typing import Protocol

__all__ = ["Registers"]


class Registers(Protocol):
    """The registers of an engine or a node; see `afflux_hdl.contract.registers`."""

    def read(self, address: int) -> int:
        """Read a 32-bit register."""

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register.

        Raises:
            WriteRefused: It is refused, and nothing is written. Over PCIe nobody reports that.
        """

    def close(self) -> None:
        """Free what is held."""
