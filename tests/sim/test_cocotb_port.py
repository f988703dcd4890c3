"""Runs the testbench of the node behind a MAC: for 25 Gbit/s, and `make test-long` for CMAC."""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port.verilog import PORT_MODULE, PortParameters, generate_port
from afflux_sim.testbench.simulator import build_verilog, run_module
from tests.support.checkout import BUILD
from tests.testbench.port import SIZES, TX_BEATS

pytestmark = pytest.mark.slow

FOLDER = BUILD / "cocotb"


def verilog(bus_bits: int, mac_bits: int) -> str:
    """Return the Verilog that the testbench is for. Its register port is on pins."""
    node = NodeParameters(engine=Parameters(bus_bits=bus_bits, **SIZES))
    return generate_port(PortParameters(node=node, mac_bits=mac_bits, tx_beats=TX_BEATS))


@pytest.mark.parametrize(
    ("bus_bits", "mac_bits"),
    [(256, 64), pytest.param(512, 512, marks=pytest.mark.long)],
    ids=["25G", "cmac"],
)
def test_port(bus_bits: int, mac_bits: int) -> None:
    build = build_verilog(FOLDER, verilog(bus_bits, mac_bits), PORT_MODULE)
    results = FOLDER / "results" / f"port-{bus_bits}-{mac_bits}"
    run_module(build, results, "tests.testbench.port", top=PORT_MODULE)
