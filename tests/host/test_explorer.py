"""Some trials of the explorer, and that it finds bugs. `make explore` has as many as wanted."""

import pytest

from tests.explorer.plan import drawn
from tests.explorer.planted import BUGS, planted
from tests.explorer.world import World, Wrong

TRIALS = 120

SLOW = {"nothing is kept for ranks that are behind", "a rank that leaves leaves nothing"}
"""Bugs that few trials meet."""


def test_no_trial_ends_badly():
    counts = {"results": 0, "fail_overs": 0, "fail_backs": 0}
    for seed in range(TRIALS):
        world = World(drawn(seed))
        world.play()
        counts = {name: count + world.counts[name] for name, count in counts.items()}
    # Ranks have gone over, and come back, so that there was something to go wrong.
    assert counts["results"] > 1000
    assert counts["fail_overs"] > 100
    assert counts["fail_backs"] > 20


def test_a_trial_is_the_same_again():
    worlds = [World(drawn(12)) for _ in range(2)]
    for each in worlds:
        each.play()
    assert len({(each.scheduler.steps, each.scheduler.now) for each in worlds}) == 1


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=pytest.mark.long if bug in SLOW else ()) for bug in BUGS]
)
def test_a_bug_is_found(bug):
    for seed in range(TRIALS):
        with planted(bug):
            try:
                World(drawn(seed)).play()
            except Wrong:
                return
    pytest.fail(f"no trial up to {TRIALS} shows it")
