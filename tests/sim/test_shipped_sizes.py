"""Shipped sizes: every build is filled to its edges, in C++ and in RTL; some by `make test-long`.

Most other tests have engines of 16 slots or 8, as these are compiled once and fill up soon.
"""

from typing import cast

import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.verilog_cache import engine_verilog
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.edge_checks import check_all_jobs, check_all_parents, check_edges
from tests.mutation.native_bugs import caught
from tests.scenarios.director import Build
from tests.scenarios.shipped_builds import SHIPPED, SOFTWARE, build_of

pytestmark = pytest.mark.slow

DISTINCT = {parameters: name for name, parameters in reversed(SHIPPED.items())}
"""By parameters the first that has them."""

LONG = {"default", "alveo", "as02mc04", "ecpix5-45f", "ecpix5-85f"}
"""Compilers take minutes for these: `make test-long` has them."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in LONG else ())
        for name in reversed(DISTINCT.values())
    ],
)
def test_filled_to_its_edges(name: str) -> None:
    parameters = SHIPPED[name]
    verilog = engine_verilog(default_folder(), parameters)
    with VerilatedEngine.from_verilog(verilog, parameters.bus_bits) as engine:
        check_edges(engine, build_of(parameters))


def test_software_filled_to_its_edges() -> None:
    engine = cast(VerilatedEngine, SoftEngine(**SOFTWARE))
    check_edges(engine, SOFTWARE, queues=False)


def test_software_of_as_many_jobs_as_there_are_numbers() -> None:
    """As `soft://` starts it."""
    build: Build = {**SOFTWARE, "jobs": 256}
    engine = cast(VerilatedEngine, SoftEngine(**build))
    check_all_jobs(engine, build, queues=False)
    check_all_parents(engine, build)


@pytest.mark.long
def test_bug_in_software_is_caught() -> None:
    """One of those of `make mutation-native`, which compiles the engine anew."""
    assert caught("gives slots 1,024 apart one memory")
