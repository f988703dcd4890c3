"""All ranks use an aggregator that is back from the same call on, under every schedule."""

import pytest

from tests.models.fail_back_model import FAIL_BACK_FAULTS, FailBackGuards, FailBackModel
from tests.models.model_checker import check

TRACES = {
    "a rank that has said how far it is goes on": "dead end",
    "a call that is running is not counted": "dead end",
    "ranks go as far as rank 0 has begun": "dead end",
    "a rank uses what others have not joined": "wrong sum",
    "nobody hears that a rank has given up": "dead end",
}
"""What the checker finds without each guard: ranks that wait for each other, or different ways."""


@pytest.mark.parametrize(
    ("roots", "size", "attempts"),
    [
        ((None, None), 2, 2),
        ((0, None, 1), 2, 2),
        ((None, None), 3, 1),
        ((0, 1, None), 3, 1),
        pytest.param((None, 1, 1, None), 3, 1, marks=pytest.mark.long),
    ],
)
def test_no_two_ways_and_no_dead_end(roots, size, attempts):
    outcome = check(FailBackModel(roots, size, attempts))
    assert (outcome.fault, outcome.trace) == (None, ())


def test_every_guard_is_taken_out():
    faults = FAIL_BACK_FAULTS.values()
    out = {name for each in faults for name, there in vars(each).items() if not there}
    assert out == set(vars(FailBackGuards()))
    assert FAIL_BACK_FAULTS.keys() == TRACES.keys()


@pytest.mark.parametrize("name", TRACES)
def test_guard_by_guard(name):
    outcome = check(FailBackModel((None, 0, None), 2, 1, FAIL_BACK_FAULTS[name]))
    assert outcome.fault == TRACES[name]
