"""Runs cocotb testbenches on a 32-bit engine; `make test-long` all of each, also on a 512-bit one.

Workers, lanes and slots are run-time values, so one build of each width serves all cases. Other
tests play the same cases, trees and schedules to the pins of both widths in process.
"""

import pytest

from afflux_hdl.engine.parameters import Parameters
from tests.scenarios.cases import CASES
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

SOME = {
    # Each case in one of the two shapes.
    "cases": [f"case/case={name}/shape={at % 2}" for at, name in enumerate(CASES)],
    # Each shape, and either kind of network.
    "streams": [
        "all_zero/shape=1",
        *(f"sizes/shape={shape}/flood={shape != 0}" for shape in (0, 2)),
        *(f"unkind/shape={shape}/ready_share={share}" for shape, share in ((1, 1.0), (2, 0.5))),
    ],
    "axi_stream": [],
    "ethernet_mac": [],
}
"""By module the tests that run without `make test-long`; all, if empty."""


def built(bus_bits: int) -> Parameters:
    return Parameters(bus_bits=bus_bits, **LARGE)


@pytest.mark.parametrize(
    ("module", "bus_bits", "tests"),
    [
        *(pytest.param(module, 32, tests, id=f"{module}-32") for module, tests in SOME.items()),
        *(
            pytest.param(module, bits, [], id=f"{module}-{bits}-all", marks=pytest.mark.long)
            for bits in (512, 32)
            for module in MODULES
            if bits == 512 or SOME.get(module) != []
        ),
    ],
)
def test_engine(module: str, bus_bits: int, tests: list[str]) -> None:
    build = build_simulator(FOLDER, built(bus_bits))
    results = FOLDER / "results" / f"{module}-{bus_bits}"
    run_module(build, results, f"tests.testbench.{module}", tests=tests)
