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
        full = (1 << self._bytes) - 1
        # Writing a pin costs as much as evaluating the engine: only those that change are written.
        self._set_end(full, last=False, error=False)
        for at in range(0, len(frame), self._bytes):
            if not self._pace():
                dut.rx_valid.value = 0
                await FallingEdge(dut.clk)
                while not self._pace():
                    await FallingEdge(dut.clk)
                dut.rx_valid.value = 1
            elif at == 0:
                dut.rx_valid.value = 1
            beat = frame[at : at + self._bytes]
            dut.rx_data.value = int.from_bytes(beat, "little")
            if at + self._bytes >= len(frame):
                self._set_end(full >> (self._bytes - len(beat)), last=True, error=mac_error)
            await FallingEdge(dut.clk)
            while not dut.rx_ready.value:
                self.stalls += 1
                await FallingEdge(dut.clk)
        dut.rx_valid.value = 0

    def _set_end(self, keep: int, *, last: bool, error: bool) -> None:
        self._dut.rx_keep.value = keep
        self._dut.rx_last.value = last
        self._dut.rx_error.value = error
