"""The ten cases for jobs that are too large for the simulator's pins to be driven from Python."""

import pytest

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import check_case
from tests.scenarios.cases import CASES
from tests.scenarios.director import LARGE
from tests.scenarios.job_frames import Job

pytestmark = pytest.mark.slow


# Workers, lanes, slots.
@pytest.mark.parametrize("shape", [(64, 16, 1), (33, 2, 16)], ids=str)
@pytest.mark.parametrize("bus_bits", [512, 32])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, bus_bits: int, shape: tuple[int, int, int]) -> None:
    workers, lanes, slots = shape
    job = Job(number=3, workers=workers, lanes=lanes, slots=slots)
    with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
        check_case(engine, LARGE, job, CASES[name])
