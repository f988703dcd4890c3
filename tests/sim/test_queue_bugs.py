"""Bugs of queues, turns and discarded output, each found by the check that is about it."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.checks.engine_checks import BUILDS
from tests.checks.link_checks import check_discards_for_a_moment
from tests.checks.pace_checks import check_pace
from tests.checks.ring_checks import (
    check_discarded_replays,
    check_emptied,
    check_neighbouring_rings,
)
from tests.scenarios.director import Build
from tests.support.planted_engine import planted_engine
from tests.support.planting import Bug

pytestmark = [pytest.mark.slow, pytest.mark.long]

BUILT = BUILDS[32]
TWO_SLOTS: Build = {"workers": 2, "lanes": 1, "jobs": 1, "slots": 2}

BUGS: dict[str, tuple[Bug, Build, Callable[..., None]]] = {
    "a ring reaches into the next": (
        Bug(
            "engine/delivery_queue.py",
            "arriving.slot + arriving.header.operation - 1",
            "(arriving.slot + arriving.header.operation - 1) | 4",
        ),
        BUILT,
        check_neighbouring_rings,
    ),
    "a ring that has gone round is full": (
        Bug("engine/rings.py", "between, between + size", "between, size"),
        BUILT,
        check_emptied,
    ),
    "eight of two slots are none": (
        Bug(
            "engine/delivery_queue.py",
            "return max(2 * parameters.slots, REPLAYS_PER_JOB)",
            "return 2 * parameters.slots",
        ),
        TWO_SLOTS,
        check_discarded_replays,
    ),
    "a result waits for another job's turn": (
        Bug(
            "engine/scheduler.py",
            "self.arrives & (self.arrived != self.choice)",
            "self.arrives & (self.arrived != (self.choice ^ 1))",
        ),
        BUILT,
        partial(check_pace, bus_bits=32),
    ),
    "the rest of a discarded frame is sent": (
        Bug("engine/transmit.py", "drops.eq(dropping | unsent2)", "drops.eq(unsent2)"),
        BUILT,
        check_discards_for_a_moment,
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_it_is_found(name: str) -> None:
    bug, build, check = BUGS[name]
    with (
        planted_engine(f"queues, {name}", bug, 32, build) as engine,
        pytest.raises(AssertionError),
    ):
        check(engine, build=build)
