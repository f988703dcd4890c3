"""No rank is left with a wrong sum when the aggregator dies, under every schedule."""

import pytest

from tests.models.fail_over_model import FAIL_OVER_FAULTS, FailOverGuards, FailOverModel
from tests.models.fail_over_streams_model import STREAMS_FAULTS, StreamsFailOverModel
from tests.models.host_memory_model import HOST_FAULTS, HostModel
from tests.models.model_checker import check

TRACES = {
    "a rank takes results after it has written its state": ("wrong sum", 8),
    "nothing is kept of a call that is over": ("wrong sum", 11),
    "what is kept goes when the next call begins": ("wrong sum", 12),
    "ranks keep their results to themselves": ("wrong sum", 8),
    "ranks act before all have written their states": ("dead end", 3),
    "a rank that leaves takes its results along": ("dead end", 18),
}
"""What the checker finds without each guard, and in how many steps."""


@pytest.mark.parametrize(("size", "slots"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_no_wrong_sum_and_no_dead_end(size, slots):
    outcome = check(FailOverModel(size, slots))
    assert (outcome.fault, outcome.trace) == (None, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "slots", "rows", "calls"),
    [pytest.param(3, 3, 3, 3, marks=pytest.mark.long), (4, 2, 3, 2)],
)
def test_more_of_all(size, slots, rows, calls):
    assert check(FailOverModel(size, slots, rows, calls)).fault is None


def test_every_guard_is_taken_out():
    out = {
        name
        for each in FAIL_OVER_FAULTS.values()
        for name, there in vars(each).items()
        if not there
    }
    assert out == set(vars(FailOverGuards()))
    assert FAIL_OVER_FAULTS.keys() == TRACES.keys()


@pytest.mark.parametrize("name", TRACES)
def test_guard_by_guard(name):
    outcome = check(FailOverModel(2, 1, guards=FAIL_OVER_FAULTS[name]))
    assert (outcome.fault, len(outcome.trace)) == TRACES[name]


STREAMS_TRACES = {
    "a rank leaves an own call that all have called": ("wrong sum", 16),
    "a rank waits in an own call for one that will not call it": ("dead end", 10),
}


@pytest.mark.parametrize(("size", "lanes"), [(2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("own", [{1}, {0, 2}])
def test_ranks_that_have_streams_to_each_other(size, lanes, own):
    outcome = check(StreamsFailOverModel(size, lanes, own=frozenset(own)))
    assert (outcome.fault, outcome.trace) == (None, ())


@pytest.mark.parametrize("name", STREAMS_TRACES)
def test_own_calls_guard_by_guard(name):
    outcome = check(StreamsFailOverModel(2, 1, guards=STREAMS_FAULTS[name]))
    assert (outcome.fault, len(outcome.trace)) == STREAMS_TRACES[name]


HOST_TRACES = {
    "the other does not wait for the leader": ("wrong sum", 20),
    "a piece that has not begun has the marks of another": ("wrong sum", 6),
    "the leader writes while it waits": ("wrong sum", 15),
    "a call all of whose pieces are whole goes on": ("wrong sum", 21),
}


@pytest.mark.parametrize(("pieces", "results"), [(1, 1), (2, 2), (3, 2), (4, 2)])
def test_ranks_of_a_host(pieces, results):
    outcome = check(HostModel(pieces, results, calls=3))
    assert (outcome.fault, outcome.trace) == (None, ())


@pytest.mark.parametrize("name", HOST_TRACES)
def test_hosts_guard_by_guard(name):
    assert HOST_FAULTS.keys() == HOST_TRACES.keys()
    outcome = check(HostModel(3, 2, guards=HOST_FAULTS[name]))
    assert (outcome.fault, len(outcome.trace)) == HOST_TRACES[name]
