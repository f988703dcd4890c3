"""Runs cocotb testbenches on a 32-bit engine; `make test-long` all of them, also on a 512-bit one.

Workers, lanes and slots are run-time values, so one build of each width serves all cases. Other
tests play the same cases, trees and schedules to the pins of both widths in process.
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

LONG = [("trees", 32), ("schedules", 32), *((module, 512) for module in MODULES)]


def built(bus_bits: int) -> Parameters:
    return Parameters(bus_bits=bus_bits, **LARGE)


@pytest.mark.parametrize(
    ("module", "bus_bits"),
    [
        pytest.param(module, bits, marks=pytest.mark.long if (module, bits) in LONG else ())
        for bits in (512, 32)
        for module in MODULES
    ],
)
def test_engine(module: str, bus_bits: int) -> None:
    build = build_simulator(FOLDER, built(bus_bits))
    run_module(build, FOLDER / "results" / f"{module}-{bus_bits}", f"tests.testbench.{module}")
