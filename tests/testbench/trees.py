"""The cases for groups and parents, on the engine's pins.

Run by test_cocotb_engine.py; not collected by pytest itself.
"""

import random
from typing import Any

import cocotb

from tests.scenarios.cases import Case
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.tree_cases import TREE_CASES
from tests.testbench.pins import run_on_pins

# Workers, lanes, slots.
SHAPES = [(1, 1, 1), (3, 2, 2)]


@cocotb.test()
@cocotb.parametrize(case=list(TREE_CASES.values()), shape=range(2), ready_share=[1.0, 0.6])
async def case(dut: Any, case: Case, shape: int, ready_share: float) -> None:
    workers, lanes, slots = SHAPES[shape]
    job = Job(number=1, workers=workers, lanes=lanes, slots=slots, slot_base=3)

    def scenario(director: Director) -> Actions[None]:
        yield from director.create(job)
        yield from case(director, job, random.Random(1))
        yield from director.check_counters()
        assert director.left_out == 0

    await run_on_pins(dut, scenario, ready_share=ready_share, gap_share=1 - ready_share)
