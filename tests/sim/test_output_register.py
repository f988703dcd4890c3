"""The engine whose memories have output registers: all checks that mutants are judged by; bugs."""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from afflux_sim.rtl.compile.verilog_cache import engine_verilog
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS
from tests.mutation.battery import full_battery
from tests.support.checkout import BUILD
from tests.support.planted_engine import engine_verilog as planted_verilog
from tests.support.planting import Bug

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


BUGS = {
    # Two operations in a row are of one slot.
    "words that are being written are read as they were": (
        "together",
        Bug(
            "engine/merge.py",
            "held_words.eq(Mux(overtaken, written, self.read_words.data))",
            "held_words.eq(self.read_words.data)",
        ),
    ),
    "refusals are not counted": (
        "refusal rate",
        Bug(
            "engine/admit.py",
            "m.d.sync += limit.take.eq(valid3 & refused & fits)",
            "m.d.comb += limit.take.eq(0)",
        ),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_bug_is_found(bug):
    name, planted = BUGS[bug]
    sizes = {"ram_output_register": 1, **BUILDS[512]}
    folder = BUILD / "tests" / "planted" / bug.replace(" ", "-")
    verilog = planted_verilog(folder, planted, 512, sizes)
    library = build_library(find_toolchain(), default_folder(), verilog, 512, quick=True)
    (trial,) = (each for each in full_battery(512, later=1) if each.name == name)
    with VerilatedEngine.from_library(library) as engine, pytest.raises(AssertionError):
        trial.check(engine)
