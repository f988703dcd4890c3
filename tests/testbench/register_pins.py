"""Reads and writes the engine's registers through its `reg` pins."""

from typing import Any

from cocotb.triggers import FallingEdge

__all__ = ["RegisterPins"]


class RegisterPins:
    """One access in each cycle.

    Args:
        dut: The engine.
    """

    def __init__(self, dut: Any) -> None:
        self._dut = dut
        dut.reg_address.value = 0
        dut.reg_write.value = 0

    async def read(self, address: int) -> int:
        """Read the register at byte `address`."""
        self._dut.reg_address.value = address
        await FallingEdge(self._dut.clk)
        return int(self._dut.reg_read_data.value.to_unsigned())

    async def write(self, address: int, value: int) -> None:
        """Write the register at byte `address`."""
        self._dut.reg_address.value = address
        self._dut.reg_write_data.value = value
        self._dut.reg_write.value = 1
        await FallingEdge(self._dut.clk)
        self._dut.reg_write.value = 0
