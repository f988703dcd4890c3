"""Workers and aggregator over real loopback sockets."""

import numpy as np
import pytest

from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, read_counters
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.ranks import Ranks
from tests.support.drivers.tensors import OPERATIONS, awkward, gaussian


@pytest.mark.parametrize(
    "workers",
    [n if n in (1, 2, 3, 8) else pytest.param(n, marks=pytest.mark.long) for n in range(1, 9)],
)
def test_any_number_of_workers(served, workers):
    generator = np.random.default_rng(workers)
    lease = create_job(served.address, workers, 16, 8, 5.0)
    with Ranks(lease.ticket) as ranks:
        for dtype, reduction in OPERATIONS:
            count = int(generator.integers(2000, 9000))
            tensors = [awkward(generator, count, dtype, True) for _ in range(workers)]
            results = ranks.all_reduce(tensors, dtype, reduction)
            assert_same_bits(results, expected(tensors, dtype, reduction))
        counters = read_counters(served.address, 5.0)
        assert counters["blocks_accepted"] == ranks.blocks_sent()
    lease.close()


@pytest.mark.parametrize(("lanes", "slots"), [(1, 1), (5, 4), (16, 32)])
def test_sizes_at_boundaries(served, lanes, slots):
    generator = np.random.default_rng(lanes)
    lease = create_job(served.address, 2, lanes, slots, 5.0)
    assert (lease.ticket.lanes, lease.ticket.slots) == (lanes, slots)
    edges = {64, 64 * lanes, 64 * lanes * slots}
    with Ranks(lease.ticket) as ranks:
        for count in sorted({0, 1, *(edge + step for edge in edges for step in (-1, 0, 1))}):
            for dtype in (wire.Dtype.FLOAT32, wire.Dtype.INT32):
                tensors = [gaussian(generator, count, dtype) for _ in range(2)]
                results = ranks.all_reduce(tensors, dtype, Reduction.SUM)
                assert_same_bits(results, expected(tensors, dtype, Reduction.SUM))
    lease.close()


@pytest.mark.parametrize("loss", [0.05, pytest.param(0.1, marks=pytest.mark.long)])
def test_loss_both_ways_changes_no_bit(served, loss):
    generator = np.random.default_rng(7)
    lease = create_job(served.address, 4, 16, 8, 5.0)
    with Ranks(lease.ticket, loss=loss) as ranks:
        for dtype, reduction in OPERATIONS:
            tensors = [awkward(generator, 5000, dtype, True) for _ in range(4)]
            results = ranks.all_reduce(tensors, dtype, reduction)
            assert_same_bits(results, expected(tensors, dtype, reduction))
        for worker in ranks.workers:
            statistics = worker.statistics
            assert statistics.dropped_sent > 0
            assert statistics.dropped_received > 0
            assert statistics.retransmissions > 0
        assert read_counters(served.address, 5.0)["blocks_accepted"] == ranks.blocks_sent()
    lease.close()


def test_jobs_share_an_aggregator(served):
    generator = np.random.default_rng(8)
    leases = [create_job(served.address, workers, 4, 4, 5.0) for workers in (1, 2, 3)]
    for lease in leases:
        with Ranks(lease.ticket) as ranks:
            count = lease.ticket.workers
            tensors = [gaussian(generator, 5000, wire.Dtype.FLOAT32) for _ in range(count)]
            results = ranks.all_reduce(tensors, wire.Dtype.FLOAT32, Reduction.AVG)
            assert_same_bits(results, expected(tensors, wire.Dtype.FLOAT32, Reduction.AVG))
    for lease in leases:
        lease.close()


def test_statistics_add_up(served):
    lease = create_job(served.address, 2, 16, 4, 5.0)
    tensors = [np.ones(64 * 16 * 4 * 3, np.float32)] * 2
    with Ranks(lease.ticket) as ranks:
        ranks.all_reduce(tensors, wire.Dtype.FLOAT32, Reduction.SUM)
        statistics = ranks.workers[0].statistics
        # Four slots with an opening round and three rows; a fingerprint in one of them.
        assert statistics.operations == 1
        assert statistics.rounds == 16
        assert statistics.blocks_sent == 16 * 4 * 3 + 1
        assert statistics.packets_sent == 1 + 16 + statistics.retransmissions + statistics.probes
        if not statistics.retransmissions:
            packets = 17 + statistics.probes
            assert statistics.bytes_sent == packets * 86 + 256 * statistics.blocks_sent
        assert statistics.frame_bytes_sent == statistics.bytes_sent + 42 * statistics.packets_sent
        assert 0 < statistics.round_trip_s < 5
    lease.close()
