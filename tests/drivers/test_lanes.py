"""The bits of a result depend on the elements only: not on how many lanes and slots a job has."""

import numpy as np
import pytest

from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import assert_same_bits, check_counters, expected
from tests.support.drivers.tensors import FLOATS, as_dtype, awkward, bits_of
from tests.support.drivers.virtual_job import VirtualJob, at_random

RANKS = 3
# One, both ends of what fits into a packet of 5 lanes and of 16, and more than any.
COUNTS = (1, 21, 22, 85, 86, 320, 321)
SUMS = (Reduction.SUM, Reduction.AVG)
NOW = (1, 2, 5, 8, 15, 16)
"""Lanes of every run: the ends, what a frame of 1,500 bytes has, and one between."""


def cancelling(generator: np.random.Generator, count: int, dtype: wire.Dtype) -> list[np.ndarray]:
    """Two ranks cancel, and the third one's part is what is left."""
    large, small = (6e4, 2.0**-20) if dtype is wire.Dtype.FLOAT16 else (1e38, 2.0**-100)
    huge = as_dtype(generator.uniform(-large, large, count), dtype)
    sign = np.array(1 << (8 * huge.itemsize - 1)).astype(f"u{huge.itemsize}")
    opposite = (bits_of(huge) ^ sign).view(huge.dtype)
    return [huge, opposite, as_dtype(generator.integers(1, 9, count) * small, dtype)]


def inputs(count: int, dtype: wire.Dtype) -> list[list[np.ndarray]]:
    generator = np.random.default_rng(count)
    return [
        [awkward(generator, count, dtype, non_finite=False) for _ in range(RANKS)],
        [awkward(generator, count, dtype, non_finite=True) for _ in range(RANKS)],
        cancelling(generator, count, dtype),
    ]


@pytest.mark.parametrize(
    ("lanes", "slots"),
    [
        pytest.param(lanes, (1, 4)[lanes % 2], marks=() if lanes in NOW else pytest.mark.long)
        for lanes in range(1, wire.LANES_MAX + 1)
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_have_the_same_bits_at_any_number_of_lanes(dtype, lanes, slots):
    job = VirtualJob(RANKS, lanes, slots)
    for count in COUNTS:
        for tensors in inputs(count, dtype):
            for reduction in SUMS:
                results = job.all_reduce(tensors, dtype, reduction)
                assert_same_bits(results, expected(tensors, dtype, reduction))
    check_counters(job)


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_cancels_leaves_the_rest(dtype):
    for lanes in (1, 5, wire.LANES_MAX):
        job = VirtualJob(RANKS, lanes, 4)
        for count in COUNTS:
            tensors = cancelling(np.random.default_rng(count), count, dtype)
            for result in job.all_reduce(tensors, dtype, Reduction.SUM):
                assert np.array_equal(bits_of(result), bits_of(tensors[2])), count


@pytest.mark.parametrize("lanes", [1, 2, 5, 15, 16])
def test_small_sums_survive_loss(lanes):
    job = VirtualJob(RANKS, lanes, 4)
    for seed, count in enumerate(COUNTS):
        for tensors in inputs(count, wire.Dtype.FLOAT32):
            fates = at_random(seed, lose=0.1, double=0.1, delay=0.05)
            results = job.all_reduce(tensors, wire.Dtype.FLOAT32, Reduction.SUM, fates)
            assert_same_bits(results, expected(tensors, wire.Dtype.FLOAT32, Reduction.SUM))
    check_counters(job)


@pytest.mark.parametrize(
    ("lanes", "slots", "count", "rounds"),
    [
        # 3 ranks of 320 elements are 15 blocks beside the fingerprint: one round trip.
        (16, 4, 320, 1),
        # Six blocks of each rank, on two slots of 5 lanes: opening and one more, each.
        (5, 4, 321, 4),
        (5, 1, 321, 3),
        (1, 1, 321, 7),
        # Four blocks are what fits beside the fingerprint at 5 lanes.
        (5, 4, 85, 1),
        (5, 4, 86, 2),
        (1, 4, 1, 2),
        (2, 4, 21, 1),
        (2, 4, 22, 2),
    ],
)
def test_rounds_of_small_sums(lanes, slots, count, rounds):
    job = VirtualJob(RANKS, lanes, slots)
    job.all_reduce([np.ones(count, np.float32)] * RANKS, wire.Dtype.FLOAT32, Reduction.SUM)
    assert [session.statistics.rounds for session in job.sessions] == [rounds] * RANKS
