"""The engine whose memories have output registers: all checks that mutants are judged by."""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from afflux_sim.rtl.compile.verilog_cache import engine_verilog
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS
from tests.mutation.battery import full_battery

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=sorted(BUILDS), ids=str)
def built(request):
    bus_bits = request.param
    parameters = Parameters(bus_bits=bus_bits, ram_output_register=1, **BUILDS[bus_bits])
    folder = default_folder()
    verilog = engine_verilog(folder, parameters)
    assert "afflux_ram_registered" in verilog
    return bus_bits, build_library(find_toolchain(), folder, verilog, bus_bits, quick=True)


@pytest.mark.parametrize("name", [trial.name for trial in full_battery(512)])
def test_check(built, name):
    bus_bits, library = built
    (trial,) = (each for each in full_battery(bus_bits, later=1) if each.name == name)
    with VerilatedEngine.from_library(library) as engine:
        trial.check(engine)
