"""A table that does not pass on what is written as it is read: no mutant of a netlist is that."""

import pytest

from tests.checks.control_checks import check_behind_a_join
from tests.scenarios.director import Build
from tests.support.planted_engine import bug_is_found
from tests.support.planting import Bug

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_late_join_is_caught() -> None:
    """The worker table, without passing on what is written while it is read.

    At 512 bits, where two frames can be two cycles apart.
    """
    right = "check = entries.read_port(transparent_for=(write,))"
    bug = Bug("engine/tables.py", right, "check = entries.read_port()")
    build: Build = {"workers": 3, "lanes": 2, "jobs": 1, "slots": 2}
    with bug_is_found("late join", bug, 512, build) as engine:
        check_behind_a_join(engine, build)
