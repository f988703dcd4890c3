"""Several aggregators that share the columns of a tensor: the same bits for any number of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, read_counters
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import (
    AggregatorRefused,
    AggregatorUnreachable,
    Disagreement,
    RanksMissing,
)
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.ranks import Ranks, run_ranks
from tests.support.drivers.served import Served
from tests.support.drivers.tensors import OPERATIONS, awkward, gaussian
from tests.support.drivers.virtual_job import ticket_of

RANKS, LANES = 3, 5
F32 = wire.Dtype.FLOAT32


@pytest.fixture
def aggregators(no_threads_left: None) -> Iterator[list[tuple[str, int]]]:
    """Run four aggregators; give their addresses."""
    served: list[Served] = []
    try:
        for _ in range(4):
            served.append(Served(SoftEngine()))
        yield [each.address for each in served]
    finally:
        for each in served:
            each.stop()


@contextmanager
def sharing(
    addresses: Sequence[tuple[str, int]],
    slots: Sequence[int] = (8, 8, 8, 8),
    loss: float = 0.0,
    peer_timeout_s: float = 10.0,
) -> Iterator[Ranks]:
    """Ranks whose columns these aggregators share."""
    with ExitStack() as leases:
        tickets = []
        for address, count in zip(addresses, slots, strict=False):
            lease = create_job(address, RANKS, LANES, count, 5.0)
            leases.callback(lease.close)
            tickets.append(lease.ticket)
        with Ranks(*tickets, loss=loss, peer_timeout_s=peer_timeout_s) as ranks:
            yield ranks


def rounds(addresses: Sequence[tuple[str, int]]) -> list[int]:
    return [read_counters(address, 5.0)["rounds"] for address in addresses]


@pytest.mark.parametrize(
    ("count", "loss", "most"),
    [
        pytest.param(1, 0.0, 20_001, marks=pytest.mark.long),
        pytest.param(2, 0.05, 20_001, marks=pytest.mark.long),
        pytest.param(3, 0.0, 20_001, marks=pytest.mark.long),
        pytest.param(4, 0.05, 20_001, marks=pytest.mark.long),
        pytest.param(2, 0.05, 8001, marks=pytest.mark.long),
        (4, 0.0, 8001),
    ],
)
def test_every_operation_has_the_same_bits(aggregators, count, loss, most):
    """Around the sizes at which one aggregator more takes part, awkward values, sparse tensors."""
    generator = np.random.default_rng(count)
    packet = 64 * LANES
    with sharing(aggregators[:count], loss=loss) as ranks:
        for dtype, reduction in OPERATIONS:
            for elements in (0, 7, 73, packet, packet + 1, 3 * packet, most):
                tensors = [awkward(generator, elements, dtype, True) for _ in range(RANKS)]
                results = ranks.all_reduce(tensors, dtype, reduction)
                assert_same_bits(results, expected(tensors, dtype, reduction))
        for density in (0.0, 0.02, 0.3):
            tensors = [gaussian(generator, 5 * most // 2, F32, density) for _ in range(RANKS)]
            results = ranks.all_reduce(tensors, F32, Reduction.SUM)
            assert_same_bits(results, expected(tensors, F32, Reduction.SUM))
        sent = sum(read_counters(a, 5.0)["blocks_accepted"] for a in aggregators[:count])
        assert sent == ranks.blocks_sent()
        for worker in ranks.workers:
            assert worker.statistics.operations == len(OPERATIONS) * 7 + 3
            assert (worker.statistics.retransmissions > 0) == (loss > 0)
    assert all(rounds(aggregators[:count]))
    assert not any(rounds(aggregators[count:]))


def test_the_first_aggregators_take_small_tensors(aggregators):
    generator = np.random.default_rng(9)

    def take_part(elements: int) -> list[bool]:
        before = rounds(aggregators)
        tensors = [gaussian(generator, elements, F32) for _ in range(RANKS)]
        results = ranks.all_reduce(tensors, F32, Reduction.SUM)
        assert_same_bits(results, expected(tensors, F32, Reduction.SUM))
        return [now > then for now, then in zip(rounds(aggregators), before, strict=True)]

    packet = 64 * LANES
    with sharing(aggregators) as ranks:
        # 73 elements are exact: three packets at these lanes, and still one aggregator's.
        for elements, parts in ((1, 1), (73, 1), (packet, 1), (packet + 1, 2), (3 * packet, 3)):
            assert take_part(elements) == [number < parts for number in range(4)], elements
        assert take_part(100 * packet) == [True] * 4


def test_columns_are_spread_evenly(aggregators):
    with sharing(aggregators) as ranks:
        tensors = [np.ones(64 * LANES * 8 * 4 * 5, np.float32) for _ in range(RANKS)]
        ranks.all_reduce(tensors, F32, Reduction.SUM)
        accepted = [read_counters(address, 5.0)["blocks_accepted"] for address in aggregators]
    # A fingerprint of each rank, and a fourth of the blocks.
    assert accepted == [RANKS * (1 + LANES * 8 * 5)] * 4


def test_the_least_slot_count_is_everyones(aggregators):
    generator = np.random.default_rng(3)
    with sharing(aggregators, slots=(8, 3, 5, 16)) as ranks:
        for elements in (1000, 30_000):
            tensors = [gaussian(generator, elements, F32, 0.5) for _ in range(RANKS)]
            results = ranks.all_reduce(tensors, F32, Reduction.SUM)
            assert_same_bits(results, expected(tensors, F32, Reduction.SUM))


def test_a_disagreement_is_found_where_the_tensors_need_different_aggregators(aggregators):
    with sharing(aggregators) as ranks:
        tensors = [np.ones(size, np.float32) for size in (10, 10_000, 10)]
        for outcome in ranks.all_reduce(tensors, F32, Reduction.SUM, timeout_s=5.0):
            assert isinstance(outcome, Disagreement)


def test_a_silent_aggregator_is_named(no_threads_left):
    first, second = Served(SoftEngine()), Served(SoftEngine())
    try:
        # Nor is it there to close its job.
        with (
            suppress(AggregatorUnreachable, AggregatorRefused),
            sharing([first.address, second.address], peer_timeout_s=0.5) as ranks,
        ):
            second.stop()
            tensors = [np.ones(10_000, np.float32) for _ in range(RANKS)]
            outcomes = ranks.all_reduce(tensors, F32, Reduction.SUM)
            host, port = second.address
            for outcome in outcomes:
                assert isinstance(outcome, AggregatorUnreachable)
                assert f"{host}:{port}" in str(outcome)
    finally:
        first.stop()
        second.stop()


def test_a_missing_rank_is_named(aggregators):
    with sharing(aggregators[:2]) as ranks:
        tensor = np.ones(10_000, np.float32)

        def call(rank: int) -> Callable[[], object]:
            return lambda: ranks.workers[rank].all_reduce(
                tensor, F32, Reduction.SUM, tensor.shape, 0.7
            )

        for outcome in run_ranks([call(0), call(2)]):
            assert isinstance(outcome, RanksMissing)
            assert outcome.ranks == (1,)


def test_a_job_that_one_aggregator_does_not_have(aggregators):
    lease = create_job(aggregators[0], 1, LANES, 4, 5.0)
    host, port = aggregators[1]
    worker = Worker([lease.ticket, replace(lease.ticket, host=host, port=port)], 0)
    with pytest.raises(AggregatorRefused, match=f"aggregator at {host}:{port} refused rank 0"):
        worker.join(5.0)
    worker.close()
    lease.close()


def at_home(ticket: JobTicket) -> JobTicket:
    return replace(ticket, host="127.0.0.1")


@pytest.mark.parametrize("other", [ticket_of(3, 5, 4), ticket_of(2, 4, 4)])
def test_jobs_that_do_not_fit_one_another(other):
    with pytest.raises(ValueError, match="as many ranks and lanes"):
        Worker([at_home(ticket_of(2, 5, 4)), at_home(other)], 0)


def test_no_job():
    with pytest.raises(ValueError, match="at least one"):
        Worker([], 0)


def test_more_aggregators_than_packets():
    assert _native.sharing(int(F32), Reduction.SUM.number, 64 * LANES * 2, LANES, 7) == 2
    assert _native.sharing(int(F32), Reduction.SUM.number, 0, LANES, 7) == 1
