"""Runs the testbenches of the node behind a MAC of 25 Gbit/s, and behind CMAC.

Each compiles a design of its own for a minute: by `make sim` and `make test-long`.
"""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.management.management import Management
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port.verilog import PORT_MODULE, PortParameters, generate_port
from tests.support.checkout import BUILD
from tests.testbench.managed_port import SETTINGS
from tests.testbench.port import SIZES, TX_BEATS
from tests.testbench.simulator import build_verilog, run_module

pytestmark = [pytest.mark.slow, pytest.mark.long]

FOLDER = BUILD / "cocotb"


def verilog(bus_bits: int, mac_bits: int, management: Management | None = None) -> str:
    """Return the Verilog that the testbench is for."""
    node = NodeParameters(engine=Parameters(bus_bits=bus_bits, ram_output_register=1, **SIZES))
    parameters = PortParameters(node=node, mac_bits=mac_bits, tx_beats=TX_BEATS)
    return generate_port(parameters, management)


@pytest.mark.parametrize(("bus_bits", "mac_bits"), [(256, 64), (512, 512)], ids=["25G", "cmac"])
def test_port(bus_bits: int, mac_bits: int) -> None:
    build = build_verilog(FOLDER, verilog(bus_bits, mac_bits), PORT_MODULE)
    results = FOLDER / "results" / f"port-{bus_bits}-{mac_bits}"
    run_module(build, results, "tests.testbench.port", top=PORT_MODULE)


def test_appliance() -> None:
    """All of the AS02MC04's design up to the MAC's streams, its management with it."""
    # The session is drawn from fewer samples than on a board: it takes milliseconds there.
    management = Management(
        settings=SETTINGS, clock_hz=156.25e6, dhcp=False, entropy_blocks=8, entropy_spacing_bits=0
    )
    build = build_verilog(FOLDER, verilog(256, 64, management), PORT_MODULE)
    run_module(build, FOLDER / "results" / "port", "tests.testbench.managed_port", top=PORT_MODULE)
