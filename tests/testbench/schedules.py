"""Schedules drawn by hypothesis, on the engine's pins.

hypothesis calls a plain function for each example, so it runs in a thread of its own, and each of
its actions resumes the simulation. Run by test_cocotb_engine.py; not collected by pytest itself.
"""

import warnings
from typing import Any

import cocotb
from cocotb.task import bridge, resume
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import HypothesisSideeffectWarning

from tests.scenarios.schedules import Schedule, play_schedule, schedules
from tests.testbench.engine_testbench import EngineTestbench
from tests.testbench.pins import new_director, perform_on_pins

# cocotb loads pytest's plugins for its own use and leaves hypothesis's half started.
warnings.simplefilter("ignore", HypothesisSideeffectWarning)


@cocotb.test()
@cocotb.parametrize(ready_share=[1.0, 0.6])
async def schedule(dut: Any, ready_share: float) -> None:
    testbench = EngineTestbench(dut, ready_share=ready_share, gap_share=1 - ready_share)
    await testbench.start()
    director = await new_director(testbench)

    @resume
    async def play(schedule: Schedule) -> None:
        await perform_on_pins(testbench, play_schedule(director, schedule))

    # Examples follow one another in one engine, so a failure is shown as it came: to shrink it,
    # the same schedules run on fresh engines in tests/sim/test_engine_random.py.
    @settings(
        max_examples=25,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schedules())
    def play_all(schedule: Schedule) -> None:
        play(schedule)

    await bridge(play_all)()
    await perform_on_pins(testbench, director.check_counters())
