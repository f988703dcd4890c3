"""The protocol between the levels of a tree holds under every schedule; each guard is needed."""

import itertools

import pytest

from tests.models.model_checker import TREE_FAULTS, TREE_SIZES, check
from tests.models.tree_model import TreeGuards, TreeModel

# Steps of the shortest counterexample; None where there must be none.
TRACE_LENGTHS = {
    "a waiting round is replayed": 3,
    "a duplicate while waiting is not sent up": 2,
    "nobody sends DATA again where nobody is missing": 2,
    "a leaf takes results of other rounds": 25,
    "the header of a partial sum is made when it is sent": 23,
    "a partial sum that is in is added again": 11,
    "the parent does not replay R − 1": 15,
    "workers run a round ahead, full rounds make room for the next": 4,
    "full rounds make room for the next": None,
    "a result is taken that the slot does not wait for": None,
}


@pytest.mark.parametrize(("leaves", "rounds"), TREE_SIZES, ids=str)
def test_no_wrong_sum_and_no_dead_end(leaves, rounds):
    outcome = check(TreeModel(leaves, rounds))
    assert (outcome.fault, outcome.trace) == (None, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leaves", "rounds"),
    [
        ((1, 1), 16),
        *(
            pytest.param(*size, marks=pytest.mark.long)
            for size in (((1, 1), 40), ((2, 1), 8), ((2, 2), 5))
        ),
    ],
    ids=str,
)
def test_more_rounds(leaves, rounds):
    assert check(TreeModel(leaves, rounds)).fault is None


def test_every_further_round_adds_the_same_states():
    # Later rounds are like those before; that is why a few rounds show every fault.
    states = [check(TreeModel((1, 1), rounds)).states for rounds in range(3, 7)]
    assert len({later - sooner for sooner, later in itertools.pairwise(states)}) == 1


def test_what_the_states_leave_out_makes_no_difference():
    forgetful = check(TreeModel((1, 1), 1))
    mindful = check(TreeModel((1, 1), 1, forgetful=False))
    assert mindful.states > 2 * forgetful.states
    assert mindful.fault is None


def test_every_guard_is_taken_out():
    taken_out = {
        name for fault in TREE_FAULTS for name, there in vars(fault.guards).items() if not there
    }
    assert taken_out == set(vars(TreeGuards()))
    assert [fault.name for fault in TREE_FAULTS] == list(TRACE_LENGTHS)


@pytest.mark.parametrize("fault", TREE_FAULTS, ids=lambda fault: fault.name)
def test_guard_by_guard(fault):
    outcome = check(fault.model())
    assert outcome.fault == fault.expected
    assert len(outcome.trace) == (TRACE_LENGTHS[fault.name] or 0)
    if outcome.fault == "wrong sum":
        assert str(outcome.trace[-1]).endswith("a wrong sum")


@pytest.mark.parametrize(
    "fault", [fault for fault in TREE_FAULTS if fault.expected == "dead end"], ids=str
)
def test_guards_are_needed_by_leaves_of_two_workers_too(fault):
    assert check(TreeModel((2, 1), 2, guards=fault.guards)).fault == fault.expected
