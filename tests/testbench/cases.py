"""The cases of the first switch implementation, on the engine's pins.

Run by test_cocotb_engine.py; not collected by pytest itself.
"""

import random
from typing import Any

import cocotb

from tests.scenarios.cases import CASES, Case
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job
from tests.testbench.pins import run_on_pins

# Workers, lanes, slots: two slots, and frames for a 1500-byte MTU. Engines in process meet the
# largest frames.
SHAPES = [(2, 1, 2), (4, 5, 2)]


@cocotb.test()
@cocotb.parametrize(case=list(CASES.values()), shape=range(2))
async def case(dut: Any, case: Case, shape: int) -> None:
    # Each case meets a network that pauses, and one that takes a beat in each cycle.
    ready_share = 1.0 if shape else 0.6
    workers, lanes, slots = SHAPES[shape]
    job = Job(number=1, workers=workers, lanes=lanes, slots=slots, slot_base=3)

    def scenario(director: Director) -> Actions[None]:
        yield from director.create(job)
        yield from case(director, job, random.Random(1))
        yield from director.check_counters()
        assert director.left_out == 0

    await run_on_pins(dut, scenario, ready_share=ready_share, gap_share=1 - ready_share)
