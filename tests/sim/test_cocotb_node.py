"""Runs the testbenches of the node, on a 32-bit one; `make test-long` also on a 512-bit one."""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from tests.support.checkout import BUILD
from tests.testbench.simulator import build_simulator, run_module

pytestmark = pytest.mark.slow

FOLDER = BUILD / "cocotb"


def built(bus_bits: int) -> NodeParameters:
    return NodeParameters(engine=Parameters(bus_bits=bus_bits, workers=4, lanes=2, jobs=2, slots=4))


@pytest.mark.parametrize(
    ("module", "bus_bits"),
    [
        ("node", 32),
        ("axi_lite", 32),
        # The register port is as wide on either, and the wide model takes minutes to compile.
        pytest.param("node", 512, marks=pytest.mark.long),
        pytest.param("axi_lite", 512, marks=pytest.mark.long),
    ],
)
def test_node(module: str, bus_bits: int) -> None:
    build = build_simulator(FOLDER, built(bus_bits))
    run_module(build, FOLDER / "results" / f"{module}-{bus_bits}", f"tests.testbench.{module}")
