"""Loss, duplication, delay and reordering of any packets: the bits stay the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import check_counters, check_operation
from tests.support.drivers.tensors import OPERATIONS, awkward
from tests.support.drivers.virtual_job import Fate, VirtualJob, at_random


@settings(max_examples=60)
@given(
    workers=st.integers(1, 4),
    lanes=st.sampled_from([1, 2, 3, 16]),
    slots=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
    operations=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 700)), min_size=1, max_size=4
    ),
    fates=st.lists(st.sampled_from(list(Fate)), max_size=150),
)
def test_any_schedule(workers, lanes, slots, seed, operations, fates):
    generator = np.random.default_rng(seed)
    job = VirtualJob(workers, lanes, slots)
    schedule = iter(fates)
    for (dtype, reduction), count in operations:
        tensors = [awkward(generator, count, dtype, True) for _ in range(workers)]
        check_operation(job, tensors, dtype, reduction, schedule)
    check_counters(job)


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=pytest.mark.long) if n in (1, 4, 5) else n for n in range(6)]
)
def test_heavy_loss(seed):
    generator = np.random.default_rng(seed)
    workers = 2 + seed % 3
    job = VirtualJob(workers, 4, 3)
    fates = at_random(seed, lose=0.3, double=0.1, delay=0.1)
    for dtype, reduction in OPERATIONS:
        tensors = [awkward(generator, 3000, dtype, True) for _ in range(workers)]
        check_operation(job, tensors, dtype, reduction, fates)
    check_counters(job)
    assert all(session.statistics.retransmissions > 10 for session in job.sessions)
    assert all(session.statistics.probes > 0 for session in job.sessions)


def test_a_perfect_network_needs_no_second_try():
    generator = np.random.default_rng(1)
    job = VirtualJob(4, 16, 4)
    for dtype, reduction in OPERATIONS:
        tensors = [awkward(generator, 5000, dtype, True) for _ in range(4)]
        check_operation(job, tensors, dtype, reduction)
    for session in job.sessions:
        statistics = session.statistics
        assert (statistics.retransmissions, statistics.probes, statistics.ignored) == (0, 0, 0)


def test_a_slow_aggregator_is_not_asked_twice_for_ever():
    """Its round trip is beyond the first timeout; the estimate must get there all the same."""
    generator = np.random.default_rng(3)
    job = VirtualJob(2, 2, 4)
    job.flight_s = 0.3
    tensors = [awkward(generator, 4000, wire.Dtype.FLOAT32, False) for _ in range(2)]
    for _ in range(3):
        check_operation(job, tensors, wire.Dtype.FLOAT32, Reduction.SUM)
    before = [session.statistics.probes for session in job.sessions]
    assert all(before)
    for _ in range(5):
        check_operation(job, tensors, wire.Dtype.FLOAT32, Reduction.SUM)
    assert [session.statistics.probes for session in job.sessions] == before
    assert [session.statistics.retransmissions for session in job.sessions] == [0, 0]


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.DELIVER])
def test_one_mishap_at_every_place(fate):
    """Each packet of a short operation, in both directions, is hit in one of the runs."""
    generator = np.random.default_rng(2)
    tensors = [awkward(generator, 500, wire.Dtype.FLOAT32, True) for _ in range(2)]
    for place in range(40):
        job = VirtualJob(2, 2, 2)
        fates = [Fate.DELIVER] * place + [fate]
        for _ in range(2):
            check_operation(job, tensors, wire.Dtype.FLOAT32, Reduction.SUM, fates)
        check_counters(job)
