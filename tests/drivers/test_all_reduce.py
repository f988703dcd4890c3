"""All-reduces without sockets: every dtype and reduction has the golden bits at every rank."""

from collections.abc import Iterator

import numpy as np
import pytest

from afflux_drivers.collective import Reduction, storage_dtype
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import (
    assert_same_bits,
    check_counters,
    check_operation,
    expected,
)
from tests.support.drivers.tensors import FLOATS, OPERATIONS, as_dtype, awkward, bits_of, gaussian
from tests.support.drivers.virtual_job import Fate, VirtualJob, counters_of

LANES, SLOTS = 3, 2


def sizes() -> list[int]:
    """None, one, and around a block, a packet, a row, and where the opening round is full."""
    edges = {64, 64 * LANES, 64 * LANES * SLOTS, 2 * 64 * LANES * SLOTS, 128}
    return sorted({0, 1, *(edge + step for edge in edges for step in (-1, 0, 1))})


@pytest.mark.parametrize(("dtype", "reduction"), OPERATIONS)
def test_sizes_at_boundaries(dtype, reduction):
    generator = np.random.default_rng(1)
    job = VirtualJob(3, LANES, SLOTS)
    for count in sizes():
        tensors = [awkward(generator, count, dtype, non_finite=False) for _ in range(3)]
        check_operation(job, tensors, dtype, reduction)
    check_counters(job)


@pytest.mark.parametrize(
    "workers",
    [pytest.param(n, marks=pytest.mark.long) if n in (4, 6, 7) else n for n in range(1, 9)],
)
@pytest.mark.parametrize(("dtype", "reduction"), OPERATIONS)
def test_numbers_of_workers(dtype, reduction, workers):
    generator = np.random.default_rng(workers)
    job = VirtualJob(workers, 5, 2)
    for count in (7, 2000):
        tensors = [gaussian(generator, count, dtype) for _ in range(workers)]
        check_operation(job, tensors, dtype, reduction)
    check_counters(job)


@pytest.mark.parametrize(
    "lanes", [1, *(pytest.param(lanes, marks=pytest.mark.long) for lanes in (2, 5)), 16]
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_infinities_denormals_limits(dtype, lanes):
    generator = np.random.default_rng(lanes)
    for workers in (1, 2, 5):
        job = VirtualJob(workers, lanes, 2)
        for reduction in Reduction:
            for count in (60, 3000):
                tensors = [awkward(generator, count, dtype, True) for _ in range(workers)]
                check_operation(job, tensors, dtype, reduction)
        check_counters(job)


@pytest.mark.parametrize(
    "density",
    [0.0, 0.1, 0.99, *(pytest.param(each, marks=pytest.mark.long) for each in (0.01, 0.5))],
)
def test_densities(density):
    generator = np.random.default_rng(5)
    for dtype in (wire.Dtype.INT32, wire.Dtype.FLOAT32):
        job = VirtualJob(4, 16, 4)
        tensors = [gaussian(generator, 64 * 16 * 4 * 9 + 5, dtype, density) for _ in range(4)]
        check_operation(job, tensors, dtype, Reduction.SUM)
        check_counters(job)
        padded = [np.pad(bits_of(t), (0, -len(t) % 64)).reshape(-1, 64) for t in tensors]
        present = [bits.any(axis=1).sum() for bits in padded]
        # The fingerprint is the only block beyond those of which a bit is set.
        sent = [session.statistics.blocks_sent - 1 for session in job.sessions]
        assert sent == present


def test_zero_everywhere_takes_one_round():
    job = VirtualJob(4, 16, 4)
    zeros = [np.zeros(40_000, np.float32) for _ in range(4)]
    check_operation(job, zeros, wire.Dtype.FLOAT32, Reduction.SUM)
    assert counters_of(job.engine)["rounds"] == 4


@pytest.mark.parametrize("workers", [pytest.param(63, marks=pytest.mark.long), 64])
def test_most_workers_at_the_limits_do_not_overflow(workers):
    job = VirtualJob(workers, 16, 1)
    for dtype in FLOATS:
        largest = 65504 if dtype is wire.Dtype.FLOAT16 else 3.3895313892515355e38
        greatest = as_dtype(np.full(2000, largest), dtype)
        for reduction in (Reduction.SUM, Reduction.AVG):
            check_operation(job, [greatest] * workers, dtype, reduction)
    assert counters_of(job.engine)["overflows"] == 0


def test_int32_wraps_and_the_overflow_is_counted():
    job = VirtualJob(2, 4, 1)
    tensors = [np.full(1000, 2**31 - 1, np.int32), np.full(1000, 1, np.int32)]
    check_operation(job, tensors, wire.Dtype.INT32, Reduction.SUM)
    assert counters_of(job.engine)["overflows"] == 1000


def test_small_tensors_take_one_round_trip():
    generator = np.random.default_rng(3)
    # Tensors that fit 15 blocks: a word for each rank side by side, or one for the sum.
    for dtype, reduction in OPERATIONS:
        added = dtype is wire.Dtype.INT32 and reduction is Reduction.SUM
        most = 960 if added else 960 // 3 * 4 // storage_dtype(dtype).itemsize
        job = VirtualJob(3, 16, 4)
        check_operation(
            job, [awkward(generator, most, dtype, True) for _ in range(3)], dtype, reduction
        )
        assert [session.statistics.rounds for session in job.sessions] == [1] * 3
        check_operation(
            job, [awkward(generator, most + 1, dtype, True) for _ in range(3)], dtype, reduction
        )
        assert all(session.statistics.rounds > 1 for session in job.sessions)


def test_operation_numbers_pass_the_wrap_of_their_field():
    job = VirtualJob(2, 2, 1)
    for session in job.sessions:
        session.number = 0xFFFF
    for value in (1, 2, 3):
        tensors = [np.full(3, value, np.int32)] * 2
        check_operation(job, tensors, wire.Dtype.INT32, Reduction.SUM)
    assert job.sessions[0].number == 0x1_0002


def test_the_tensor_is_left_as_it_was():
    generator = np.random.default_rng(4)
    for dtype, reduction in OPERATIONS:
        tensors = [awkward(generator, 64 * 16, dtype, True) for _ in range(2)]
        copies = [tensor.copy() for tensor in tensors]
        results = VirtualJob(2, 16, 1).all_reduce(tensors, dtype, reduction)
        for tensor, copy, result in zip(tensors, copies, results, strict=True):
            assert tensor.tobytes() == copy.tobytes()
            assert not np.shares_memory(tensor, result)


class Watched(VirtualJob):
    """Keeps what is sent."""

    def __init__(self, workers: int, lanes: int, slots: int) -> None:
        self.sent: list[bytes] = []
        super().__init__(workers, lanes, slots)

    def _launch(self, target: int | str, packet: bytes, fates: Iterator[Fate]) -> None:
        self.sent.append(packet)
        super()._launch(target, packet, fates)


@pytest.mark.parametrize(("dtype", "reduction"), OPERATIONS)
def test_results_in_place_come_of_the_same_packets(dtype, reduction):
    """Also where a block is visited twice, after its elements have been overwritten once."""
    generator = np.random.default_rng(6)
    apart, in_place = Watched(3, LANES, SLOTS), Watched(3, LANES, SLOTS)
    for count in (0, 7, 60, 64 * LANES, 3000):
        tensors = [awkward(generator, count, dtype, True) for _ in range(3)]
        for tensor in tensors:
            # Blocks of zeros of both signs, which no rank sends.
            tensor[count // 2 : count // 2 + 200] = as_dtype(np.array([-0.0]), dtype)
        want = expected(tensors, dtype, reduction)
        assert_same_bits(apart.all_reduce(tensors, dtype, reduction), want)
        results = in_place.all_reduce(tensors, dtype, reduction, in_place=True)
        assert_same_bits(results, want)
        if count:
            assert all(map(np.shares_memory, results, tensors))
    assert in_place.sent == apart.sent
