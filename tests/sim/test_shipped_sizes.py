"""Shipped sizes: every build is filled to its edges, in RTL and in C++.

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
from tests.support.planted_engine import bug_is_found
from tests.support.planting import Bug

pytestmark = pytest.mark.slow

DISTINCT = {parameters: name for name, parameters in reversed(SHIPPED.items())}
"""By parameters the first that has them."""

SIBLINGS = {"alveo", "ecpix5-45f", "ecpix5-85f"}
"""As the default, with the output register that as02mc04 has too; and boards with ECP5 as others,
the larger of which `test_mutation_sizes.py` fills as well."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in SIBLINGS else ())
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


def test_bug_in_software_is_caught() -> None:
    """One of those of `make mutation-native`."""
    assert caught("gives slots 1,024 apart one memory")


BUGS = {
    "slots 256 apart share their blocks": Bug(
        "lib/ram.py",
        "p_ADDRESS_BITS=self._address_bits,",
        "p_ADDRESS_BITS=min(self._address_bits, 14),",
    ),
    "slots 256 apart share their words": Bug(
        "lib/ram.py",
        "p_ADDRESS_BITS=self._address_bits,",
        "p_ADDRESS_BITS=self._address_bits - (self._address_bits == 10),",
    ),
    "slots 256 apart have one round": Bug(
        "engine/slot_state.py",
        "round_read.addr.eq(self.send.address)",
        "round_read.addr.eq(self.send.address[:8])",
    ),
    "replays lie where results do": Bug(
        "engine/delivery_queue.py",
        "address = bits_for(depth - 1)",
        "address = bits_for(depth - 1) - 1",
    ),
    "jobs 4 apart have one parent": Bug(
        "engine/tables.py", "self._depth = 1 << job", "self._depth = 1 << min(job, 2)"
    ),
    "jobs 4 apart share their workers": Bug(
        "engine/tables.py",
        "self._depth = 1 << address.size",
        "self._depth = 1 << min(address.size, 8)",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught(name: str) -> None:
    default = SHIPPED["default"]
    build = build_of(default)
    with bug_is_found(name, BUGS[name], default.bus_bits, build) as engine:
        check_edges(engine, build)
