"""Drives whole frames into the engine's ``rx`` pins."""

from typing import Any

from cocotb.triggers import FallingEdge

from afflux_sim.bench.pace import Pace

__all__ = ["StreamDriver"]


class StreamDriver:
    """One beat in each cycle that the pace allows.

    Args:
        dut: The engine.
        pace: In which cycles a beat is offered.

    Attributes:
        stalls: Cycles in which ``rx_ready`` was low while a beat was offered.
    """

    def __init__(self, dut: Any, pace: Pace) -> None:
        self._dut = dut
        self._pace = pace
        self._bytes = len(dut.rx_data) // 8
        self.stalls = 0
        dut.rx_valid.value = 0

    async def drive(self, frame: bytes, mac_error: bool = False) -> None:
        """Drives one frame of at least one byte; returns when its last beat has been taken."""
        dut = self._dut
        for at in range(0, len(frame), self._bytes):
            while not self._pace():
                dut.rx_valid.value = 0
                await FallingEdge(dut.clk)
            beat = frame[at : at + self._bytes]
            last = at + self._bytes >= len(frame)
            dut.rx_data.value = int.from_bytes(beat, "little")
            dut.rx_keep.value = (1 << len(beat)) - 1
            dut.rx_last.value = last
            dut.rx_error.value = last and mac_error
            dut.rx_valid.value = 1
            await FallingEdge(dut.clk)
            while not dut.rx_ready.value:
                self.stalls += 1
                await FallingEdge(dut.clk)
        dut.rx_valid.value = 0
