"""The narrow engine on CXXRTL beside Verilator: the first cases, and a difference that is found.

`make second-simulator` compares the whole smoke battery, of the node too.
"""

import ctypes
import random
from pathlib import Path

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS, open_engine
from tests.scenarios.cases import CASES
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import paces, perform
from tests.second_simulator.library import engine_library
from tests.second_simulator.twins import Difference, Twins

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("compiled_yosys")]

BUILD = BUILDS[32]
# Compiled in little time, the simulation is slow: those that need few cycles.
FIRST = ("basic_reduction", "retransmit_from_previous_set")


@pytest.fixture(scope="module")
def library() -> Path:
    return engine_library(Parameters(bus_bits=32, **BUILD))


def first_cases(engine: Twins) -> None:
    job = Job(number=1, workers=2, lanes=1, slots=1, slot_base=3)
    director = Director(**BUILD)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        for name in FIRST:
            yield from director.create(job)
            yield from CASES[name](director, job, random.Random(1))
        yield from director.check_counters()

    perform(engine, scenario(), paces(0.9, 0.1, 1))


def test_no_difference(library: Path) -> None:
    with open_engine(32) as one, VerilatedEngine.from_library(library) as other:
        twins = Twins(one, other)
        first_cases(twins)
        assert one.statistics() == other.statistics()
        assert one.cycles > 3_000 and twins.calls > 150


def test_a_difference_in_one_cycle_is_found(library: Path) -> None:
    """One of them does not see `tx_ready` once, and shows a beat twice."""
    with open_engine(32) as one, VerilatedEngine.from_library(library) as other:
        ctypes.CDLL(str(library)).plant_difference()
        with pytest.raises(Difference, match="play"):
            first_cases(Twins(one, other))
