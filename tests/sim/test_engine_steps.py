"""Counters of the engine in their largest steps, and events in the same cycle; a bug for each."""

import pytest

from tests.checks.burst_checks import check_bursts
from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import MOSTLY_32, WIDTHS
from tests.checks.step_checks import check_steps, check_together
from tests.scenarios.director import Build
from tests.support.planted_engine import planted_engine
from tests.support.planting import Bug

BUILT: Build = {"workers": 2, "lanes": 2, "jobs": 1, "slots": 2}


@WIDTHS
def test_steps_of_every_size_are_counted(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_steps(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_what_happens_together_is_counted_and_answered(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_together(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_bursts_of_every_kind_are_counted(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_bursts(engine, BUILDS[bus_bits])


@pytest.mark.slow
@pytest.mark.long
def test_a_burst_that_a_counter_forgets_is_found() -> None:
    """The recent events in three bits: no other check has as many of one kind at once."""
    bug = Bug("lib/counter_bank.py", "Mux(turn == number, 0, sum_next)",
              "Mux(turn == number, 0, sum_next[:3])")  # fmt: skip
    with (
        planted_engine("bursts", bug, 512, BUILT) as engine,
        pytest.raises(AssertionError, match="counters"),
    ):
        check_bursts(engine, BUILT)
