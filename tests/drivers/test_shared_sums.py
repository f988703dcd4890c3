"""Correctly rounded sums in shared memory: golden bits, whatever way an operation takes."""

from collections.abc import Iterator

import numpy as np
import pytest

from afflux_drivers.c_api import Collective
from afflux_drivers.collective import Reduction
from afflux_drivers.collectives.call import GroupCall
from afflux_hdl.contract import wire
from afflux_sim.golden.reductions import Tensor
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.shared_processes import Processes
from tests.support.drivers.tensors import FLOATS, OPERATIONS, bits_of
from tests.support.golden_tensors import KINDS, draw

# Small enough for the golden model, which computes element by element in Python.
SMALL_BYTES = 512
BATCH_BYTES = 768
REACHABLE = 1 << 16
COUNT = 611


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    processes = Processes(8)
    yield processes
    processes.end()


def tensors_for(ranks: int, kind: str, dtype: wire.Dtype, seed: int) -> list[Tensor]:
    """Return a tensor for each rank; those of a sparse kind also have blocks without a bit."""
    generator = np.random.default_rng(seed)
    tensors = [draw(generator, kind, dtype.name.lower(), COUNT) for _ in range(ranks)]
    if kind in ("sparse", "zeros"):
        block = wire.BLOCK_BYTES // tensors[0].itemsize
        for tensor in tensors:
            for start in range(0, COUNT, block):
                if generator.random() < 0.7:
                    tensor[start : start + block] = 0
    return tensors


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(8, marks=pytest.mark.long)])
def test_every_way_has_the_golden_bits(processes: Processes, ranks: int) -> None:
    parts = {"small": slice(0, 100), "staged": slice(0, COUNT), "one pass": slice(0, COUNT)}
    cases = [(i, *each, kind) for i, each in enumerate(OPERATIONS) for kind in KINDS]
    given = [(d, r, tensors_for(ranks, kind, d, seed)) for seed, d, r, kind in cases]
    wanted = [expected(tensors, dtype, reduction) for dtype, reduction, tensors in given]
    with processes.group(ranks, SMALL_BYTES, BATCH_BYTES, REACHABLE):
        for (dtype, reduction, tensors), want in zip(given, wanted, strict=True):
            for way, part in parts.items():
                places = [256] * ranks if way == "one pass" else None
                inputs = [tensor[part].copy() for tensor in tensors]
                results = processes.reduce(inputs, dtype, reduction, places)
                assert_same_bits(results, want[part])
        statistics = processes.call(0, "ask", "statistics")
        assert {statistics[way.replace(" ", "_")] for way in parts} == {len(cases)}
    with processes.group(ranks, SMALL_BYTES, BATCH_BYTES, attach="attach_worker"):
        for i, ((dtype, reduction, tensors), want) in enumerate(zip(given, wanted, strict=True)):
            size = (COUNT if i % 2 else 60) // ranks
            call = GroupCall.reducing(
                Collective.REDUCE_SCATTER, dtype.name.lower(), reduction.value, (size,)
            )
            for rank, tensor in enumerate(tensors):
                processes.start(
                    rank, "collective", call, tensor[: ranks * size].copy(), inside=i % 3 == 0
                )
            for rank in range(ranks):
                result, kind, text = processes.answer(rank)
                assert not kind, f"rank {rank}: {kind}: {text}"
                assert_same_bits([result], want[rank * size : (rank + 1) * size])


@pytest.mark.parametrize("dtype", FLOATS)
def test_blocks_without_a_bit_stay_where_they_are(processes: Processes, dtype: wire.Dtype) -> None:
    tensors = tensors_for(3, "sparse", dtype, 7)
    octets = bits_of(tensors[0]).tobytes()
    blocks = [octets[i : i + wire.BLOCK_BYTES] for i in range(0, len(octets), wire.BLOCK_BYTES)]
    with processes.group(3, SMALL_BYTES, BATCH_BYTES):
        results = processes.reduce(tensors, dtype, Reduction.SUM)
        assert_same_bits(results, expected(tensors, dtype, Reduction.SUM))
        statistics = processes.call(0, "ask", "statistics")
        assert statistics["blocks_total"] == len(blocks)
        assert statistics["blocks_present"] == sum(any(block) for block in blocks)


@pytest.mark.parametrize("count", [3, 100, 2000])
@pytest.mark.parametrize("place", [None, 0])
def test_minus_zero_stays(processes: Processes, count: int, place: int | None) -> None:
    """It is a number, and the sum of nothing else but it."""
    with processes.group(2, SMALL_BYTES, BATCH_BYTES, REACHABLE):
        for other in (-0.0, 0.0):
            tensors = [np.full(count, x, np.float32) for x in (-0.0, other)]
            places = None if place is None else [place] * 2
            for result in processes.reduce(tensors, wire.Dtype.FLOAT32, Reduction.SUM, places):
                assert_same_bits([result], tensors[1])


def test_a_small_number_beside_a_large_one(processes: Processes) -> None:
    with processes.group(3):
        for count in (2, 20_000):
            tensors = [np.full(count, x, np.float32) for x in (1e9, 1.0, -1e9)]
            for result in processes.reduce(tensors, wire.Dtype.FLOAT32, Reduction.SUM):
                assert (result == 1).all()
