"""The protocol holds under every schedule, and fails as it should without each guard."""

import itertools

import pytest

from tests.models.model_checker import FAULTS, SIZES, TREE_SIZES, check, report
from tests.models.slot_model import Guards, SlotModel

# Steps of the shortest counterexample; None where there must be none.
TRACE_LENGTHS = {
    "frames with a bad end are merged": 6,
    "the header of a result is made when it is sent": 10,
    "a worker takes results of other rounds": 14,
    "one version instead of two": 9,
    "a contribution that is in is added again": 6,
    "results of R − 1 are not replayed": 9,
    "workers run a round ahead": 11,
    "workers run a round ahead, results are sent in one step": 7,
    "workers run a round ahead, results are sent in one step, premature packets open rounds": 5,
    "premature packets open rounds": None,
    "outdated results are sent": None,
}


@pytest.mark.parametrize(("workers", "rounds"), SIZES)
def test_no_wrong_sum_and_no_dead_end(workers, rounds):
    outcome = check(SlotModel(workers, rounds))
    assert (outcome.fault, outcome.trace) == (None, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "rounds"),
    [
        (2, 60),
        (3, 16),
        *(pytest.param(*size, marks=pytest.mark.long) for size in ((3, 40), (5, 4), (6, 3))),
    ],
)
def test_more_workers_and_rounds(workers, rounds):
    assert check(SlotModel(workers, rounds)).fault is None


def test_every_further_round_adds_the_same_states():
    # Later rounds are like those before; that is why a few rounds show every fault.
    for workers in (2, 3):
        states = [check(SlotModel(workers, rounds)).states for rounds in range(3, 8)]
        assert len({later - sooner for sooner, later in itertools.pairwise(states)}) == 1


def test_what_the_states_leave_out_makes_no_difference():
    forgetful = check(SlotModel(2, 2))
    mindful = check(SlotModel(2, 2, forgetful=False))
    assert mindful.states > 10 * forgetful.states
    assert mindful.fault is None


def test_every_guard_is_taken_out():
    taken_out = {
        name for fault in FAULTS for name, there in vars(fault.guards).items() if not there
    }
    assert taken_out == set(vars(Guards()))
    assert [fault.name for fault in FAULTS] == list(TRACE_LENGTHS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_guard_by_guard(fault):
    outcome = check(fault.model())
    assert outcome.fault == fault.expected
    length = TRACE_LENGTHS[fault.name]
    assert len(outcome.trace) == (length or 0)
    if outcome.fault == "wrong sum":
        assert str(outcome.trace[-1]).endswith("a wrong sum")


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.expected], ids=lambda fault: fault.name)
def test_counterexamples_can_be_walked(fault):
    """Each step of the trace is one that the model offers, and only the last is at fault."""
    model = fault.model()
    outcome = check(model)
    states = {model.first()}
    for at, action in enumerate(outcome.trace, start=1):
        last = at == len(outcome.trace)
        wrong = last and outcome.fault == "wrong sum"
        offered = [step for state in states for step in model.steps(state)]
        states = {after for name, after, w in offered if name == action and w == wrong}
        assert states, f"step {at}: {action}"
    if outcome.fault == "dead end":
        assert not any(model.is_over(state) for state in reachable(model, states))


def reachable(model: SlotModel, states):
    seen, todo = set(states), list(states)
    while todo:
        for _, after, _ in model.steps(todo.pop()):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return seen


@pytest.mark.parametrize("fault", FAULTS[:6], ids=lambda fault: fault.name)
def test_three_workers_show_the_same_faults(fault):
    assert check(SlotModel(3, 4, guards=fault.guards)).fault == fault.expected


def test_report():
    lines = list(report())
    assert lines[1].startswith("2 workers, 12 rounds: ")
    assert all("no fault" in line for line in lines[: len(SIZES) + len(TREE_SIZES)])
    assert sum(line.strip().startswith("1. ") for line in lines) == 9 + 8
