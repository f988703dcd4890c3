"""The ten cases for jobs that are too large for the simulator's pins to be driven from Python.

Each meets both widths, and one of the shapes at either; half of that by `make test-long`.
"""

import pytest

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import check_case
from tests.scenarios.cases import CASES
from tests.scenarios.director import LARGE
from tests.scenarios.job_frames import Job

pytestmark = pytest.mark.slow


SHAPES = [(64, 16, 1), (33, 2, 16)]
"""Workers, lanes, slots."""


@pytest.mark.parametrize(
    ("name", "bus_bits", "shape"),
    [
        pytest.param(
            name,
            bus_bits,
            SHAPES[(case + at) % 2],
            # Either width keeps cases of either shape.
            marks=pytest.mark.long if (case // 2 + at) % 2 else (),
        )
        for case, name in enumerate(CASES)
        for at, bus_bits in enumerate((512, 32))
    ],
    ids=str,
)
def test_case(name: str, bus_bits: int, shape: tuple[int, int, int]) -> None:
    workers, lanes, slots = shape
    job = Job(number=3, workers=workers, lanes=lanes, slots=slots)
    with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
        check_case(engine, LARGE, job, CASES[name])
