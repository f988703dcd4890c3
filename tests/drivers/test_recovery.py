"""How much virtual time lost packets cost, and how much traffic slow paths cause."""

import itertools

import numpy as np
import pytest

from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire
from tests.support.drivers.single_rank import Rank, answer_to, header_of
from tests.support.drivers.virtual_job import VirtualJob, at_random

F32 = wire.Dtype.FLOAT32
FLIGHT_S = 1e-4


def run(job: VirtualJob, count: int, operations: int, loss: float = 0.0, seed: int = 1) -> None:
    tensors = [np.ones(count, np.float32)] * len(job.sessions)
    fates = at_random(seed, loss, 0.0, 0.0)
    for _ in range(operations):
        job.all_reduce(tensors, F32, Reduction.SUM, fates)


def probes_of(job: VirtualJob) -> int:
    return sum(session.statistics.probes for session in job.sessions)


def repeats_of(job: VirtualJob) -> int:
    return sum(session.statistics.retransmissions for session in job.sessions)


@pytest.mark.parametrize(
    ("count", "limit_s"),
    [
        # One round of one slot: a third of the operations lose something, and nothing else tells of
        # it but the timer, which is 5 ms above the round trip.
        (10, 1.0),
        # Two rounds of five slots, and seven of eight.
        (5000, 3.5),
        (50_000, 9.0),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_lost_packets_cost_milliseconds(count, limit_s, seed):
    job = VirtualJob(4, 16, 8, flight_s=FLIGHT_S)
    run(job, count, 160, loss=0.05, seed=seed)
    assert job.now < limit_s
    # A repeated packet was lost, or its result: a worker's DATA is lost for one in 20.
    sent = sum(session.statistics.rounds for session in job.sessions)
    assert repeats_of(job) < 0.1 * sent


@pytest.mark.parametrize("flight_s", [1e-5, 1e-3, 0.05])
@pytest.mark.parametrize("count", [10, 5000])
def test_nothing_is_asked_for_where_nothing_is_lost(count, flight_s):
    job = VirtualJob(4, 16, 8, flight_s=flight_s)
    run(job, count, 20)
    assert (probes_of(job), repeats_of(job)) == (0, 0)


@pytest.mark.parametrize("count", [10, 5000, 50_000])
def test_a_path_that_becomes_slow_is_soon_asked_no_more(count):
    job = VirtualJob(4, 16, 8, flight_s=FLIGHT_S)
    run(job, count, 5)
    job.flight_s = 0.05
    run(job, count, 6)
    assert repeats_of(job) == 0
    before = probes_of(job)
    # Of each packet that was on its way a few, ever more seldom.
    assert 0 < before <= 4 * 8 * 12
    run(job, count, 20)
    assert (probes_of(job) - before, repeats_of(job)) == (0, 0)
    # And back: what is lost costs little again.
    job.flight_s = FLIGHT_S
    run(job, count, 20)
    start_s = job.now
    run(job, count, 20, loss=0.05)
    assert job.now - start_s < 1.5


def test_waiting_for_a_late_rank_asks_ever_more_seldom():
    """Each probe is of a slot; the time between two grows with what has been waited."""
    job = VirtualJob(2, 16, 8, flight_s=FLIGHT_S)
    run(job, 5000, 5)
    job.all_reduce([np.ones(5000, np.float32)] * 2, F32, Reduction.SUM, late_s={1: 1.0})
    slots = 5
    assert repeats_of(job) == 0
    assert slots <= probes_of(job) <= 16 * slots


def test_after_a_stall_probes_come_one_by_one():
    """When nothing has come for long, one slot is asked after; each answer lets one more be."""
    rank = Rank(count=20_000, slots=32)
    assert len(rank.opening) == 32
    sent, now = [], 0.2
    # The path is silent for 0.3 s.
    for _ in range(100):
        probes = rank.expire(now)
        assert len(probes) <= 1
        sent += probes
        now += 0.003
    assert 2 <= len(sent) <= 10
    assert header_of(sent[0]).slot == 0
    # Then each probe is answered: the contribution is missing, and goes out again.
    lost = {header_of(each).slot for each in sent[:-1]}
    waves, open_, again = 0, sent[-1:], []
    while open_:
        for probe in open_:
            repeated = rank.receive(answer_to(probe, wire.Type.MISSING, [0] * 16), now)
            assert repeated is not None
            again.append(repeated)
        open_ = rank.expire(now)
        assert len(open_) <= len(again) + 1
        sent += open_
        waves += 1
    assert {header_of(each).slot for each in again} | lost == set(range(32))
    assert len(again) <= 33
    assert 5 <= waves <= 8


@pytest.mark.parametrize("stall_s", [0.01, 0.2])
def test_a_stall_costs_little_more_than_itself(stall_s):
    """A link loses all that is sent for a while: few probes, and all goes on soon after it."""
    job = VirtualJob(4, 5, 32, flight_s=FLIGHT_S)
    run(job, 50_000, 3)
    began, before = job.now, probes_of(job)
    job.down_until = job.now + stall_s
    run(job, 50_000, 1)
    # Of a flight of 32 slots each is asked after once, its result perhaps once more.
    assert probes_of(job) - before <= 4 * (32 * 2 + 10)
    assert job.now - began < 2 * stall_s + 0.1


def test_after_a_silence_the_rank_joins_again():
    """Its packets may come from another address by now, to which there is no answer."""
    rank = Rank(count=20_000, slots=4)
    heard, joined = 0.0, []
    for step in range(1, 401):
        now = step / 100
        sent = rank.expire(now)
        types = [header_of(each).version_type & 0xF for each in sent]
        if wire.Type.JOIN in types:
            # Before the probe: that has an answer then.
            assert types == [wire.Type.JOIN, wire.Type.PROBE]
            joined.append(now)
            join = sent[0]
            assert (header_of(join).round, header_of(join).operation) == (0, 0)
            # An aggregator that does not know the job cannot serve it; this one is dead for the
            # worker.
            rank.receive(answer_to(join, wire.Type.REFUSED, [1] + [0] * 15), now)
        if step == 250:
            heard = now
            missing = answer_to(rank.opening[0], wire.Type.MISSING, [0] * 16)
            assert rank.receive(missing, now) is not None
    # With the first probe after the longest timeout, 1 s, and the same again.
    before = [each for each in joined if each < heard]
    after = [each for each in joined if each > heard]
    assert before and after
    assert min(b - a for a, b in itertools.pairwise([0.0, *before])) >= 1.0
    assert before[0] < 2.0
    # It counts from what was heard last.
    assert heard + 1.0 <= after[0]
