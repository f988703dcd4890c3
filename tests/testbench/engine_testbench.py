"""A whole testbench around the engine: clock, reset, streams, registers."""

from collections.abc import Sequence
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, with_timeout

from tests.testbench.pace import Pace
from tests.testbench.register_pins import RegisterPins
from tests.testbench.stream_driver import StreamDriver
from tests.testbench.stream_sampler import StreamSampler

__all__ = ["EngineTestbench"]

CLOCK_PERIOD_NS = 4
RESET_CYCLES = 4


class EngineTestbench:
    """Plays frames into the engine's pins and collects what it sends.

    Args:
        dut: The engine.
        ready_share: Share of the cycles in which `tx_ready` is high.
        gap_share: Share of the cycles in which no beat is offered to `rx`.
        seed: Seed of both choices.
    """

    def __init__(
        self, dut: Any, *, ready_share: float = 1.0, gap_share: float = 0.0, seed: int = 0
    ) -> None:
        self._dut = dut
        self.driver = StreamDriver(dut, Pace(1 - gap_share, seed))
        self.sampler = StreamSampler(dut, Pace(ready_share, seed + 1))
        self.registers = RegisterPins(dut)

    async def start(self) -> None:
        """Start the clock, reset the engine, and begin to sample its output."""
        dut = self._dut
        dut.rst.value = 1
        Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
        for _ in range(RESET_CYCLES):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        cocotb.start_soon(self.sampler.run())

    async def play(
        self, frames: Sequence[bytes], mac_errors: Sequence[bool] | None = None
    ) -> list[bytes]:
        """Drive the frames in; return those that have come out by the time the engine is idle.

        Raises:
            AssertionError: If the engine stalls `rx`.
            SimTimeoutError: If it does not become idle.
        """
        for number, frame in enumerate(frames):
            await self.driver.drive(frame, bool(mac_errors and mac_errors[number]))
        # At most 64 copies of each byte, and ten times that for back-pressure.
        await with_timeout(self.drain(), 4000 * (1000 + sum(map(len, frames))), "ns")
        assert self.driver.stalls == 0, "rx_ready was low"
        assert not self.sampler.beats, "idle in the middle of a frame"
        sent = list(self.sampler.frames)
        self.sampler.frames.clear()
        return sent

    async def drain(self) -> None:
        """Wait until the engine is idle."""
        # The last beat has been taken, but is seen inside only after the next edge.
        await FallingEdge(self._dut.clk)
        while not self._dut.idle.value:
            await RisingEdge(self._dut.idle)
            await FallingEdge(self._dut.clk)
