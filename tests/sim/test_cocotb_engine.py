"""Runs the cocotb testbenches, each on a 512-bit and on a 32-bit engine.

Workers, lanes and slots are run-time values, so one build of each width serves all cases. Trees and
schedules are those that other tests run in process, at both widths: here one width is enough, and
`make test-long` runs the other.
"""

import pytest

from afflux_hdl.engine.parameters import Parameters
from tests.scenarios.director import LARGE
from tests.support.checkout import BUILD
from tests.testbench.simulator import build_simulator, run_module

pytestmark = pytest.mark.slow

FOLDER = BUILD / "cocotb"
MODULES = [
    "cases",
    "trees",
    "streams",
    "schedules",
    "axi_stream",
    "ethernet_mac",
]


def built(bus_bits: int) -> Parameters:
    return Parameters(bus_bits=bus_bits, **LARGE)


LONG = [("cases", 32), ("trees", 512), ("schedules", 512)]


@pytest.mark.parametrize(
    ("module", "bus_bits"),
    [
        pytest.param(module, bits, marks=pytest.mark.long if (module, bits) in LONG else ())
        for module in MODULES
        for bits in (512, 32)
    ],
)
def test_engine(module: str, bus_bits: int) -> None:
    build = build_simulator(FOLDER, built(bus_bits))
    run_module(build, FOLDER / "results" / f"{module}-{bus_bits}", f"tests.testbench.{module}")
