"""Drives whole frames into the engine's `rx` pins."""

from typing import Any

from cocotb.triggers import FallingEdge

from tests.testbench.pace import Pace

__all__ = ["StreamDriver"]


class StreamDriver:
    """One beat in each cycle that the pace allows.

    Args:
        dut: The engine.
        pace: In which cycles a beat is offered.

    Attributes:
        stalls: Cycles in which `rx_ready` was low while a beat was offered.
    """

    def __init__(self, dut: Any, pace: Pace) -> None:
        # Looked up once: finding a pin by its name takes a search through the design.
        self._edge = FallingEdge(dut.clk)
        self._data, self._valid, self._ready = dut.rx_data, dut.rx_valid, dut.rx_ready
        self._keep, self._last, self._error = dut.rx_keep, dut.rx_last, dut.rx_error
        self._pace = pace
        self._bytes = len(dut.rx_data) // 8
        self.stalls = 0
        self._valid.value = 0

    async def drive(self, frame: bytes, mac_error: bool = False) -> None:
        """Drive one frame of at least one byte; return when its last beat has been taken."""
        edge, data, valid, ready = self._edge, self._data, self._valid, self._ready
        full = (1 << self._bytes) - 1
        # Writing a pin costs as much as evaluating the engine, so only those that change are.
        self._set_end(full, last=False, error=False)
        for at in range(0, len(frame), self._bytes):
            if not self._pace():
                valid.value = 0
                await edge
                while not self._pace():
                    await edge
                valid.value = 1
            elif at == 0:
                valid.value = 1
            beat = frame[at : at + self._bytes]
            data.value = int.from_bytes(beat, "little")
            if at + self._bytes >= len(frame):
                self._set_end(full >> (self._bytes - len(beat)), last=True, error=mac_error)
            await edge
            while not ready.value:
                self.stalls += 1
                await edge
        valid.value = 0

    def _set_end(self, keep: int, *, last: bool, error: bool) -> None:
        self._keep.value = keep
        self._last.value = last
        self._error.value = error
