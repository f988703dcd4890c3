"""The ten cases for jobs that are too large for the simulator's pins to be driven from Python."""

import random

import pytest
from tests.cocotb.cases import CASES
from tests.cocotb.director import Actions, Director
from tests.cocotb.job_frames import Job
from tests.cocotb.performer import paces, perform

from afflux_sim.verilated import VerilatedEngine

pytestmark = pytest.mark.slow

BUILT = {"workers": 64, "lanes": 16, "jobs": 4, "slots": 16}


# Workers, lanes, slots.
@pytest.mark.parametrize("shape", [(64, 16, 1), (33, 2, 16)], ids=str)
@pytest.mark.parametrize("bus_bits", [512, 32])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, bus_bits: int, shape: tuple[int, int, int]) -> None:
    workers, lanes, slots = shape
    director = Director(**BUILT)
    job = Job(number=3, workers=workers, lanes=lanes, slots=slots)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        yield from CASES[name](director, job, random.Random(6))
        yield from director.check_counters()

    with VerilatedEngine(bus_bits=bus_bits, **BUILT) as engine:
        perform(engine, scenario(), paces(0.9, 0.1, 1))
        assert engine.statistics().receive_stalls == 0
