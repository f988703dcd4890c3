"""Two network ports at one engine: each frame by its port.

The engine has the output register of the slot memory as well, so that each run of the tests has an
engine with all options; `test_output_register.py` asks more of it.
"""

from collections.abc import Callable
from functools import partial

import pytest

from afflux_hdl.engine.parameters import Parameters
from tests.checks import network_port_checks as checks
from tests.checks.pace_checks import check_idle, check_pace
from tests.scenarios.director import SMALL
from tests.support.ported.ported_engine import PORTS, PortedEngine, build_ported

pytestmark = pytest.mark.slow

OPTIONS = {"ports": PORTS, "ram_output_register": 1}
BUILT = Parameters(bus_bits=32, **OPTIONS, **SMALL)
CHECKS: dict[str, Callable[..., object]] = {
    "forgotten": checks.check_ports_are_forgotten,
    "moved": checks.check_moved_workers,
    "refusals": checks.check_refusals_by_port,
    "bursts": checks.check_ports_of_bursts,
    "answers": checks.check_answers_by_port,
    "pace": partial(check_pace, bus_bits=32, later=1),
    "idle": partial(check_idle, bus_bits=32, later=1),
}


@pytest.fixture(scope="module")
def built():
    return build_ported(BUILT)


@pytest.mark.parametrize("name", CHECKS)
def test_each_frame_leaves_by_its_port(built, name):
    with PortedEngine.from_library(built) as engine:
        CHECKS[name](engine, SMALL)
