"""Testbenches with other people's models around the engine: their registers and scenarios."""

import random
from collections.abc import Sequence
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from tests.scenarios.cases import Round
from tests.scenarios.director import LARGE, Action, Actions, Director, Play, ReadRegister
from tests.scenarios.job_frames import Job

__all__ = ["CLOCK_PERIOD_NS", "ModelTestbench"]

CLOCK_PERIOD_NS = 4


class ModelTestbench:
    """Clock, reset and registers of one engine; a subclass brings the streams.

    Args:
        dut: The engine, as test_cocotb_engine.py builds it.
        seed: Of what is drawn at random.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut = dut
        self.choose = random.Random(seed)
        dut.rst.value = 1
        dut.reg_write.value = 0
        Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()

    async def play(self, action: Play) -> list[bytes]:
        """Send frames in, and return those that have come out by the time all is idle."""
        raise NotImplementedError

    async def run_rounds(self, jobs: Sequence[Job], steps: int) -> None:
        """Reset, create the jobs, and check rounds of all their slots and the counters."""
        for _ in range(4):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)
        actions, answer = self._rounds(jobs, steps), None
        while True:
            try:
                action = actions.send(answer)
            except StopIteration:
                return
            answer = await self._perform(action)

    def _rounds(self, jobs: Sequence[Job], steps: int) -> Actions[None]:
        director = Director(**LARGE)
        yield from director.configure()
        for job in jobs:
            yield from director.create(job)
        for step in range(steps):
            for job in jobs:
                for slot in range(job.slots):
                    current = Round(job, slot, step, self.choose)
                    got = yield from director.flood(current.frames)
                    current.check(got, range(job.workers))
        yield from director.check_counters()

    async def _perform(self, action: Action) -> object:
        if isinstance(action, Play):
            return await self.play(action)
        self.dut.reg_address.value = action.address
        if isinstance(action, ReadRegister):
            for _ in range(3):
                await RisingEdge(self.dut.clk)
            return self.dut.reg_read_data.value.to_unsigned()
        self.dut.reg_write_data.value = action.value
        self.dut.reg_write.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.reg_write.value = 0
        await RisingEdge(self.dut.clk)
        return None
