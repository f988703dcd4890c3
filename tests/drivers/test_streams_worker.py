"""Collectives over streams at addresses: ranks in threads, over pairs of sockets."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from afflux_drivers.c_api import Collective
from afflux_drivers.collectives.call import REDUCTIONS, GroupCall
from afflux_drivers.collectives.worker import GroupWorker, RanksEnded
from afflux_drivers.errors import Disagreement, Interrupted, RanksMissing, WorkerFailed
from afflux_drivers.streams.worker import StreamsWorker
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.tensors import OPERATIONS, awkward

PIECE = 512 * 256
"""Bytes; tensors of two pieces and more are shared out among the lanes."""

LANES = pytest.mark.parametrize(("ranks", "lanes"), [(2, 1), (3, 2), (4, 1), (4, 3)])


@contextmanager
def workers(ranks: int, lanes: int = 1) -> Iterator[list[StreamsWorker]]:
    """Yield the ranks of one group."""
    ends: list[Any] = [[[None] * ranks for _ in range(lanes)] for _ in range(ranks)]
    for lane in range(lanes):
        for low in range(ranks):
            for high in range(low + 1, ranks):
                pair = socket.socketpair()
                for tcp in pair:
                    tcp.setblocking(False)
                ends[low][lane][high], ends[high][lane][low] = pair
    made = [StreamsWorker(rank, ends[rank]) for rank in range(ranks)]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def nothing() -> None:
    return None


def run(
    worker: GroupWorker, call: GroupCall, given: Any, taken: Any, timeout_s: float = 30.0
) -> None:
    """Do a collective from and to arrays; each a list where there are several."""

    def addresses(arrays: Any) -> Any:
        if isinstance(arrays, list):
            return [each.ctypes.data for each in arrays]
        return () if arrays is None else arrays.ctypes.data

    worker.run(addresses(given), addresses(taken), call, timeout_s, nothing)


def at_all(group: list[StreamsWorker], body: Callable[[StreamsWorker], Any]) -> list[Any]:
    """Return what the body returns, or raises, at each rank."""
    found: list[Any] = [None] * len(group)

    def of(rank: int) -> None:
        try:
            found[rank] = body(group[rank])
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=of, args=(rank,)) for rank in range(len(group))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


@LANES
def test_sums_have_the_golden_bits(ranks: int, lanes: int) -> None:
    generator = np.random.default_rng(ranks)
    with workers(ranks, lanes) as group:
        for i, (dtype, reduction) in enumerate(OPERATIONS):
            for count in (0, 1, 74, 500):
                given = [awkward(generator, count, dtype, bool(i % 2), 0.6) for _ in range(ranks)]
                wanted = expected(given, dtype, reduction)
                call = GroupCall.of(dtype, reduction, (count,))
                assert (
                    at_all(
                        group,
                        lambda worker: run(worker, call, None, given[worker.rank]),  # noqa: B023
                    )
                    == [None] * ranks
                )
                assert_same_bits(given, wanted)


@LANES
def test_moving(ranks: int, lanes: int) -> None:
    generator = np.random.default_rng(ranks)
    with workers(ranks, lanes) as group:
        for i, count in enumerate((0, 1, 255, 256, 257, PIECE, 2 * PIECE, 5 * PIECE + 77)):
            given = [generator.integers(0, 256, count, np.uint8) for _ in range(ranks)]
            root = i % ranks
            sent = GroupCall.moving(Collective.BROADCAST, "bool", 1, (count,), root)
            gathered = GroupCall.moving(Collective.ALL_GATHER, "bool", 1, (count,))

            def move(worker: StreamsWorker) -> Any:
                own, whole = given[worker.rank], np.empty(ranks * count, np.uint8)  # noqa: B023
                run(worker, gathered, own, whole)  # noqa: B023
                copy = own.copy()
                run(worker, sent, None, copy)  # noqa: B023
                run(worker, GroupCall.barrier(), None, None)
                return whole, copy

            for whole, copy in at_all(group, move):
                np.testing.assert_array_equal(whole, np.concatenate(given))
                np.testing.assert_array_equal(copy, given[root])
        counts = group[0].statistics()
        assert (counts["broadcast"], counts["all_gather"], counts["barrier"]) == (8, 8, 8)
        assert counts["operations"] == 24


@LANES
def test_shards_of_integers_are_exact(ranks: int, lanes: int) -> None:
    generator = np.random.default_rng(7)
    with workers(ranks, lanes) as group:
        for reduction in REDUCTIONS:
            for count in (1, 65, PIECE // 8 + 1, PIECE):
                given = [generator.integers(-(2**62), 2**62, ranks * count) for _ in range(ranks)]
                call = GroupCall.reducing(Collective.REDUCE_SCATTER, "int64", reduction, (count,))
                total = GroupCall.reducing(
                    Collective.ALL_REDUCE, "int64", reduction, (ranks * count,)
                )

                def scatter(worker: StreamsWorker) -> Any:
                    shard, whole = np.empty(count, np.int64), given[worker.rank].copy()  # noqa: B023
                    run(worker, call, given[worker.rank], shard)  # noqa: B023
                    run(worker, total, None, whole)  # noqa: B023
                    return shard, whole

                found = at_all(group, scatter)
                shards = np.concatenate([shard for shard, _ in found])
                for _, whole in found:
                    np.testing.assert_array_equal(whole, shards)
                if reduction in ("sum", "max", "min"):
                    ufunc = {"sum": np.add, "max": np.maximum, "min": np.minimum}[reduction]
                    np.testing.assert_array_equal(shards, ufunc.reduce(given))


def ones(worker: StreamsWorker, count: int = 100, timeout_s: float = 30.0) -> float:
    tensor = np.ones(count, np.float32)
    call = GroupCall.reducing(Collective.ALL_REDUCE, "float32", "sum", (count,))
    run(worker, call, None, tensor, timeout_s)
    return float(tensor[-1])


def test_a_rank_that_closes_is_named() -> None:
    with workers(3) as group:
        assert at_all(group, ones) == [3.0] * 3
        group[1].close()
        for rank, error in ((0, None), (2, None)):
            with pytest.raises(RanksEnded, match=r"rank\(s\) 1 ended or closed the group") as said:
                ones(group[rank])
            assert said.value.ranks == (1,), error
            with pytest.raises(WorkerFailed, match=f"rank {rank}'s streams failed earlier"):
                ones(group[rank])


def test_a_rank_that_does_not_come_is_named() -> None:
    with workers(3) as group:
        errors = at_all(group[:2], lambda worker: ones(worker, timeout_s=0.3))
        for error in errors:
            # Who is first tells the other one.
            assert isinstance(error, RanksMissing | RanksEnded | Interrupted), error
        missing = [each for each in errors if isinstance(each, RanksMissing)]
        assert any(each.ranks == (2,) for each in missing)


def test_a_rank_that_gives_up_tells_why() -> None:
    with workers(3) as group:
        timer = threading.Timer(0.2, group[1].fail, ["enough"])
        timer.start()
        for worker in (group[0], group[2]):
            with pytest.raises(Interrupted, match=f"rank {worker.rank}: rank 1 reports: enough"):
                ones(worker)
        timer.join()


def test_different_calls_change_nothing() -> None:
    with workers(3, 2) as group:
        tensors = [np.full(PIECE, -0.0, np.float32) for _ in range(3)]

        def differ(worker: StreamsWorker) -> None:
            reduction = "max" if worker.rank == 2 else "sum"
            call = GroupCall.reducing(Collective.ALL_REDUCE, "float32", reduction, (PIECE,))
            run(worker, call, None, tensors[worker.rank])

        for rank, error in enumerate(at_all(group, differ)):
            assert isinstance(error, Disagreement)
            others = [0, 1] if rank == 2 else [2]
            assert f"rank {rank} called this operation, but ranks {others} called" in str(error)
            assert error.fingerprints is not None and len(set(error.fingerprints)) == 2
            assert np.signbit(tensors[rank]).all()


def test_a_call_that_cannot_be_harms_nobody() -> None:
    with workers(2) as group:
        wrong = GroupCall(Collective.ALL_REDUCE, 4, 1, 4, 0, 0, "wrong")
        with pytest.raises(ValueError, match="no reduction 4 of dtype 1"):
            run(group[0], wrong, None, np.ones(4, np.float32))
        assert at_all(group, ones) == [2.0] * 2
