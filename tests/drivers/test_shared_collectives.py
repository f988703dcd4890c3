"""Broadcasts, gathers, scatters and sums of integers between processes, and calls inside calls."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers.c_api import Collective, Status
from afflux_drivers.collective import Reduction
from afflux_drivers.collectives.call import REDUCED_DTYPES, REDUCTIONS, GroupCall
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.shared_processes import Processes
from tests.support.drivers.tensors import OPERATIONS, awkward

SMALL_BYTES = 512
BATCH_BYTES = 768
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    processes = Processes(4)
    yield processes
    processes.end()


def run(processes, call, given, **options):
    """Let the ranks do a collective that succeeds, and return what each gets."""
    for rank, tensor in enumerate(given):
        processes.start(rank, "collective", call, tensor, **options)
    results = []
    for rank in range(len(given)):
        result, kind, text = processes.answer(rank)
        assert not kind, f"rank {rank}: {kind}: {text}"
        results.append(result)
    return results


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_moving(processes: Processes, ranks: int) -> None:
    generator = np.random.default_rng(ranks)
    with processes.group(ranks, SMALL_BYTES, BATCH_BYTES, attach="attach_worker"):
        for i, count in enumerate((0, 1, 100, 511, 512, 513, 768, 769, 5000)):
            given = [generator.integers(0, 256, count, np.uint8) for _ in range(ranks)]
            root = i % ranks
            call = GroupCall.moving(Collective.BROADCAST, "bool", 1, (count,), root)
            for got in run(processes, call, given):
                np.testing.assert_array_equal(got, given[root])
            call = GroupCall.moving(Collective.ALL_GATHER, "float8_e5m2", 1, (count,))
            for options in ({}, {"parts": True}, {"inside": True}):
                for got in run(processes, call, given, **options):
                    np.testing.assert_array_equal(got, np.concatenate(given))
        run(processes, GroupCall.barrier(), [None] * ranks)
        statistics = processes.call(0, "worker_statistics")
        assert statistics["broadcast"] == 9
        assert statistics["all_gather"] == 27
        assert statistics["barrier"] == 1
        assert statistics["operations"] == statistics["small"] + statistics["staged"] == 37


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_shards_have_the_golden_bits_of_their_all_reduce(processes: Processes, ranks: int) -> None:
    generator = np.random.default_rng(ranks)
    with processes.group(ranks, SMALL_BYTES, BATCH_BYTES, attach="attach_worker"):
        for i, (dtype, reduction) in enumerate(OPERATIONS):
            for count in (3, 74, 500):
                given = [
                    np.concatenate(
                        [awkward(generator, count, dtype, bool(i % 2), 0.6) for _ in range(ranks)]
                    )
                    for _ in range(ranks)
                ]
                shards = [[g[r * count : (r + 1) * count] for g in given] for r in range(ranks)]
                wanted = [expected(shard, dtype, reduction) for shard in shards]
                call = GroupCall.reducing(
                    Collective.REDUCE_SCATTER, dtype.name.lower(), reduction.value, (count,)
                )
                options = [{}, {"parts": True}, {"inside": True}][i % 3]
                for got, want in zip(run(processes, call, given, **options), wanted, strict=True):
                    assert_same_bits([got], want)
        # The last shard again, as a tensor of its own.
        call = GroupCall.of(dtype, reduction, (count,))
        for got in run(processes, call, shards[-1]):
            assert_same_bits([got], wanted[-1])


def wanted_of(tensors: list[np.ndarray], reduction: str) -> np.ndarray:
    """Return the definition: integers wrap, averages do not, and are truncated towards zero."""
    wide = np.stack(tensors).astype(object)
    dtype = tensors[0].dtype
    if reduction == "max":
        return np.max(tensors, axis=0)
    if reduction == "min":
        return np.min(tensors, axis=0)
    total = wide.prod(axis=0) if reduction == "product" else wide.sum(axis=0)
    if reduction == "avg":
        total = [abs(t) // len(tensors) * (1 if t >= 0 else -1) for t in total]
    return np.array([int(t) % 2**64 for t in total], np.uint64).astype(dtype)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact(processes: Processes, ranks: int, dtype: str) -> None:
    generator = np.random.default_rng(7)
    limits = np.iinfo(dtype)
    with processes.group(ranks, SMALL_BYTES, BATCH_BYTES, attach="attach_worker"):
        for reduction in REDUCTIONS:
            for count in (1, 60, 64, 65, 1000):
                given = [
                    generator.integers(limits.min, limits.max, ranks * count, dtype, endpoint=True)
                    for _ in range(ranks)
                ]
                want = wanted_of(given, reduction)
                call = GroupCall.reducing(Collective.REDUCE_SCATTER, dtype, reduction, (count,))
                for rank, got in enumerate(run(processes, call, given)):
                    np.testing.assert_array_equal(got, want[rank * count : (rank + 1) * count])
                call = GroupCall.reducing(Collective.ALL_REDUCE, dtype, reduction, (ranks * count,))
                for got in run(processes, call, given):
                    np.testing.assert_array_equal(got, want)


def test_float64_is_summed_in_the_order_of_ranks(processes: Processes) -> None:
    generator = np.random.default_rng(3)
    with processes.group(3, SMALL_BYTES, BATCH_BYTES, attach="attach_worker"):
        for count in (5, 1000):
            given = [generator.standard_normal(count) * 10.0**r for r in range(3)]
            want = given[0] + given[1] + given[2]
            call = GroupCall.reducing(Collective.ALL_REDUCE, "float64", "sum", (count,))
            for got in run(processes, call, given):
                np.testing.assert_array_equal(got, want)


def test_sizes_by_default(processes: Processes) -> None:
    """A larger tensor than any buffer, through the ring as it is."""
    generator = np.random.default_rng(5)
    with processes.group(4, attach="attach_worker"):
        for count in (8192, 65536, 300_001):
            given = [generator.integers(-(2**62), 2**62, 4 * count) for _ in range(4)]
            want = np.sum(given, axis=0)
            call = GroupCall.reducing(Collective.REDUCE_SCATTER, "int64", "sum", (count,))
            for rank, got in enumerate(run(processes, call, given)):
                np.testing.assert_array_equal(got, want[rank * count : (rank + 1) * count])
            part = [g[:count] for g in given]
            call = GroupCall.moving(Collective.ALL_GATHER, "int64", 8, (count,))
            for got in run(processes, call, part):
                np.testing.assert_array_equal(got, np.concatenate(part))
            call = GroupCall.moving(Collective.BROADCAST, "int64", 8, (count,), 3)
            for got in run(processes, call, part):
                np.testing.assert_array_equal(got, part[3])


def test_different_calls(processes: Processes) -> None:
    here = GroupCall.moving(Collective.BROADCAST, "int64", 8, (10,), 0)
    others = [
        (GroupCall.moving(Collective.BROADCAST, "int64", 8, (10,), 1), 0, "called something else"),
        (GroupCall.moving(Collective.BROADCAST, "complex64", 8, (10,), 0), 0, "something else"),
        (GroupCall.reducing(Collective.ALL_REDUCE, "int64", "sum", (10,)), 0, "something else"),
        (here, 5, "have called other ones before"),
    ]
    for other, history, text in others:
        with processes.group(2, attach="attach_worker"):
            given = np.arange(10)
            processes.start(0, "collective", here, given)
            processes.start(1, "collective", other, given, history=history)
            for rank in range(2):
                left, kind, error = processes.answer(rank)
                assert kind == "Disagreement"
                assert f"rank {rank} called this operation, but ranks [{1 - rank}]" in error
                assert text in error
                np.testing.assert_array_equal(left, given)
            assert processes.call(0, "collective", here, given)[1] == "WorkerFailed"


def test_what_cannot_be_called_harms_nobody(processes: Processes) -> None:
    with processes.group(2, attach="attach_worker"):
        right = GroupCall.reducing(Collective.ALL_REDUCE, "int64", "sum", (4,))
        with pytest.raises(AssertionError, match="null pointer"):
            processes.call(0, "ask", "run", (), 0, right, 1.0, None)
        wrong = GroupCall(Collective.ALL_REDUCE, 4, REDUCED_DTYPES["float32"], 4, 0, 0, "wrong")
        _, kind, text = processes.call(0, "collective", wrong, np.ones(4, np.float32))
        assert (kind, text) == ("ValueError", "no reduction 4 of dtype 1")
        for got in run(processes, right, [np.ones(4, np.int64)] * 2):
            assert (got == 2).all()


def test_calls_from_another_library(processes: Processes) -> None:
    call = GroupCall.reducing(Collective.ALL_REDUCE, "int64", "sum", (4,))
    wrong = GroupCall.reducing(Collective.ALL_REDUCE, "int64", "max", (4,))
    with processes.group(2, attach="attach_worker"):
        # One rank's time is over before the other comes.
        assert processes.call(0, "run_through_calls", call, 0.001) == Status.NOT_YET
        processes.start(0, "end_of_calls")
        assert processes.call(1, "run_through_calls", call) == Status.OVER
        assert processes.answer(0) == ([2] * 4, "", "")
        assert processes.call(1, "end_of_calls") == ([2] * 4, "", "")
        # A call that is refused does no harm.
        none = replace(call, count=2**62)
        assert processes.call(0, "run_through_calls", none) == Status.INVALID
        _, kind, text = processes.call(0, "end_of_calls")
        assert kind == "ValueError"
        assert "no memory holds" in text
        for got in run(processes, call, [np.ones(4, np.int64)] * 2):
            assert (got == 2).all()
        for rank, given in enumerate((call, wrong)):
            processes.start(rank, "run_through_calls", given)
        for rank in range(2):
            assert processes.answer(rank) == Status.DISAGREEMENT
        for rank, (left, kind, text) in enumerate(processes.call_all(2, "end_of_calls")):
            assert (left, kind) == ([1] * 4, "Disagreement")
            assert f"operation 2:{('sum', 'max')[rank]}:int64:4" in text
        assert processes.call(0, "collective", call, np.ones(4, np.int64))[1] == "WorkerFailed"
        status, text = processes.call(0, "close_and_call", call)
        assert (status, text) == (Status.FAILED, "the group is closed")
    with processes.group(2, attach="attach_worker"):
        processes.start(0, "run_through_calls", call)
        processes.call(1, "close")
        assert processes.answer(0) == Status.FAILED
        _, kind, text = processes.call(0, "end_of_calls")
        assert kind == "RanksEnded"
        assert "rank(s) 1 ended or closed the group" in text


@pytest.mark.parametrize("reduction", [Reduction.SUM, Reduction.AVG])
def test_int32_has_the_same_bits_either_way(processes: Processes, reduction: Reduction) -> None:
    if reduction is Reduction.AVG:
        call = GroupCall.reducing(Collective.ALL_REDUCE, "int32", "avg", (3,))
        want = np.array([0, -1, 2])
    else:
        call = GroupCall.of(wire.Dtype.INT32, reduction, (3,))
        same = GroupCall.reducing(Collective.ALL_REDUCE, "int32", "sum", (3,))
        assert call == same
        want = np.array([-1, -3, 5])
    with processes.group(2, attach="attach_worker"):
        given = [np.array([-3, -1, 5], np.int32), np.array([2, -2, 0], np.int32)]
        for got in run(processes, call, given):
            np.testing.assert_array_equal(got, want)
