"""Shared memory between processes gives the golden bits, at sizes and densities of every kind."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.shared_processes import Processes
from tests.support.drivers.tensors import DTYPES, awkward, gaussian

LANES = 16  # the owner of the shared-memory group's numbers

# Small enough for the golden model, which computes element by element in Python.
SMALL_BYTES = 512
BATCH_BYTES = 768
REACHABLE = 1 << 16

DEFAULT_SMALL_BYTES = 32 << 10
DEFAULT_BATCH_BYTES = (128 << 10, 256 << 10)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    processes = Processes(8)
    yield processes
    processes.end()


def tensors_for(
    ranks: int, count: int, dtype: wire.Dtype, seed: int, density: float = 0.6
) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [awkward(generator, count, dtype, bool(seed % 2), density) for _ in range(ranks)]


def check(
    processes: Processes,
    tensors: list[np.ndarray],
    dtype: wire.Dtype,
    reduction: Reduction,
    places: Sequence[int | None] | None = None,
) -> None:
    results = processes.reduce(tensors, dtype, reduction, places)
    assert_same_bits(results, expected(tensors, dtype, reduction))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_around_every_limit(processes: Processes, dtype: wire.Dtype) -> None:
    small, batch = SMALL_BYTES // dtype_bytes(dtype), BATCH_BYTES // dtype_bytes(dtype)
    edges = {0, 1, 63, 64, 65, 127, 128, 129}
    for limit in (small, batch, 2 * batch, 3 * batch, 4 * batch, 5 * batch):
        edges |= {limit - 1, limit, limit + 1, limit + 64}
    with processes.group(3, SMALL_BYTES, BATCH_BYTES, REACHABLE):
        for seed, count in enumerate(sorted(edges)):
            tensors = tensors_for(3, count, dtype, seed)
            check(processes, tensors, dtype, Reduction.SUM)
            check(processes, tensors, dtype, Reduction.SUM, [256, 256, 256])


@pytest.mark.parametrize("density", [0.0, 0.02, 0.3])
def test_sparse(processes: Processes, density: float) -> None:
    with processes.group(4, SMALL_BYTES, BATCH_BYTES, REACHABLE):
        for seed, dtype in enumerate(DTYPES):
            tensors = tensors_for(4, 3000, dtype, 2 * seed, density)
            check(processes, tensors, dtype, Reduction.SUM)
            check(processes, tensors, dtype, Reduction.SUM, [0] * 4)
        statistics = processes.call(0, "ask", "statistics")
        assert statistics["staged"] == statistics["one_pass"] == len(DTYPES)
        assert statistics["blocks_total"] == 2 * 47 + 2 * 24


def test_reachable_at_some_ranks_or_in_different_places(processes: Processes) -> None:
    with processes.group(3, SMALL_BYTES, BATCH_BYTES, REACHABLE):
        ways: list[list[int | None]] = [[0, None, 0], [None, 0, None], [0, 256, 0], [512] * 3]
        for seed, places in enumerate(ways):
            for count in (100, 400, 2500):
                tensors = tensors_for(3, count, wire.Dtype.FLOAT32, seed)
                check(processes, tensors, wire.Dtype.FLOAT32, Reduction.AVG, places)
        statistics = processes.call(1, "ask", "statistics")
        assert (statistics["small"], statistics["staged"], statistics["one_pass"]) == (4, 6, 2)


@pytest.mark.parametrize("dtype", [wire.Dtype.FLOAT32, wire.Dtype.BFLOAT16])
def test_default_sizes(processes: Processes, dtype: wire.Dtype) -> None:
    limits = [limit // dtype_bytes(dtype) for limit in (DEFAULT_SMALL_BYTES, *DEFAULT_BATCH_BYTES)]
    generator = np.random.default_rng(11)
    with processes.group(2):
        for limit in limits:
            for count in (limit - 1, limit, limit + 1, 5 * limit + 77):
                tensors = [gaussian(generator, count, dtype, 0.7) for _ in range(2)]
                results = processes.reduce(tensors, dtype, Reduction.SUM)
                assert_same_bits(results[1:], results[0])
                # A few blocks here and there, and the end: blocks depend on no others.
                starts = [64 * int(b) for b in generator.integers(0, count // 64 - 2, 8)]
                for start in (*starts, (count // 64 - 2) * 64):
                    part = slice(start, start + 192)
                    want = expected([t[part] for t in tensors], dtype, Reduction.SUM)
                    assert_same_bits([results[0][part]], want)


def test_late_ranks(processes: Processes) -> None:
    generator = np.random.default_rng(5)
    with processes.group(5, SMALL_BYTES, BATCH_BYTES):
        for count in (5, 100, 1500):
            tensors = tensors_for(5, count, wire.Dtype.FLOAT32, count)
            delays = generator.choice([0.0, 0.0, 0.02, 0.15], 5)
            results = processes.reduce(
                tensors, wire.Dtype.FLOAT32, Reduction.SUM, delays_s=delays.tolist()
            )
            want = expected(tensors, wire.Dtype.FLOAT32, Reduction.SUM)
            assert_same_bits(results, want)


def dtype_bytes(dtype: wire.Dtype) -> int:
    return 4 if dtype in (wire.Dtype.INT32, wire.Dtype.FLOAT32) else 2
