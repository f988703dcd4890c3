"""All-reduce of sparse tensors, beside torch's sum of the same tensors made dense."""

import os
import signal
import threading
import time
from datetime import timedelta
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

import afflux
from benchmarks.rows.paths import step
from tests.support.host.aggregators import aggregator
from tests.support.host.ranks import caught, run_ranks, values

SHAPES = {
    # Rows of the tensor, elements of a row, rows that each rank has.
    "few long rows": ((5000, 130), 1, (40, 7, 90)),
    "elements": ((20_000,), 1, (500, 501, 502)),
    "two sparse dimensions": ((60, 70, 3), 2, (50, 40, 30)),
    "nearly all": ((300, 8), 1, (290, 295, 200)),
    "a rank has none": ((4000, 64), 1, (0, 30, 0)),
    "nobody has any": ((4000, 64), 1, (0, 0, 0)),
    "rows without elements": ((40, 0), 1, (3, 0, 5)),
}


def drawn(name, rank, dtype=torch.float32):
    shape, sparse_dim, counts = SHAPES[name]
    source = torch.Generator().manual_seed(1 + rank)
    sparse = shape[:sparse_dim]
    flat = torch.randint(0, torch.Size(sparse).numel(), (counts[rank],), generator=source)
    indices = torch.stack(torch.unravel_index(flat, sparse))
    # Whole numbers, so that no order of adding rounds.
    values = torch.randint(-50, 50, (counts[rank], *shape[sparse_dim:]), generator=source)
    return torch.sparse_coo_tensor(indices, values.to(dtype), shape, check_invariants=False)


def sums(rank, size, dtype):
    results = {}
    for name in SHAPES:
        tensor = drawn(name, rank, dtype)
        dist.all_reduce(tensor)
        assert tensor.is_coalesced() and tensor.layout is torch.sparse_coo
        results[name] = tensor.to_dense().numpy()
    return results


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        pytest.param(torch.float64, marks=pytest.mark.long),
        pytest.param(torch.int32, marks=pytest.mark.long),
        torch.int64,
    ],
)
def test_sums_are_those_of_dense_tensors(engine, dtype):
    got = values(run_ranks(sums, 3, dtype))
    for name in SHAPES:
        want = sum(drawn(name, rank, dtype).to_dense() for rank in range(3))
        for results in got:
            np.testing.assert_array_equal(results[name], want.numpy())


def test_gloo_alone_sums_them_as_well(monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "gloo://")
    test_sums_are_those_of_dense_tensors("gloo", torch.float32)


def test_two_aggregators_share_the_columns(monkeypatch):
    with aggregator() as first, aggregator() as second:
        monkeypatch.setenv("AFFLUX_AGGREGATOR", f"{first},{second}")
        test_sums_are_those_of_dense_tensors("udp", torch.float32)


def averages(rank, size):
    tensor = drawn("few long rows", rank)
    kept = tensor.clone()
    work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True)
    work.wait()
    mean = tensor.to_dense()
    before = kept.to_dense()
    as_function = afflux.sparse.all_reduce(kept)
    layouts = [as_function.layout]
    assert torch.equal(kept.to_dense(), before)
    for name in ("nearly all", "elements"):
        result = afflux.sparse.all_reduce(drawn(name, rank))
        layouts.append(result.layout)
        in_place = drawn(name, rank)
        dist.all_reduce(in_place)
        assert torch.equal(result.to_dense(), in_place.to_dense())
    made = partial(torch.sparse_coo_tensor, check_invariants=True)
    turned = made(torch.tensor([[rank, 7000]]), torch.tensor([1j, 2 - 1j]), (9000,))
    as_numbers = afflux.sparse.all_reduce(turned)
    dist.all_reduce(turned)
    few = made(torch.tensor([[rank]]), torch.tensor([1j]), (3,))
    few_as_numbers = afflux.sparse.all_reduce(few)
    dist.all_reduce(few)
    for whole, part in ((turned, as_numbers), (few, few_as_numbers)):
        assert whole.dtype is part.dtype is torch.complex64
        assert torch.equal(whole.to_dense(), part.to_dense())
    assert turned.indices().tolist() == [[0, 1, 2, 7000]]
    assert turned.values().tolist() == [1j, 1j, 1j, 6 - 3j]
    assert few_as_numbers.tolist() == [1j, 1j, 1j]
    narrow = drawn("few long rows", rank, torch.int16)
    refused = [
        caught(lambda: afflux.sparse.all_reduce(torch.ones(3))),
        caught(lambda: dist.all_reduce(narrow)),
    ]
    dist.all_reduce(kept)
    difference = (kept.to_dense() - mean * size).abs().max().item()
    told = afflux.statistics()["sparse"]
    told["embedding"] = step()["sparse"]["sum float32 (20000, 64), 1 sparse"]
    return difference, mean.abs().max().item(), layouts, refused, told


def test_averages_and_sums_as_a_function(engine):
    for difference, largest, layouts, refused, told in values(run_ranks(averages, 3)):
        assert largest > 10
        assert difference < 1e-4
        assert layouts == [torch.sparse_coo, torch.strided, torch.sparse_coo]
        assert refused[0][1] == "ValueError"
        if engine == "soft":
            assert refused[1][1] == "CallRefused"
            assert "sparse int16 (5000, 130): neither the engine nor Gloo" in refused[1][0]
        assert sum(told["sum float32 (5000, 130), 1 sparse"]["calls"].values()) == 2
        # Of a model with dense layers beside it.
        assert told["embedding"]["calls"] == {"lists": 2}
        assert 0.02 < told["embedding"]["union"] < 0.05
        assert told["embedding"]["expected_ms"] > 0
        assert sum(told["sum float32 (300, 8), 1 sparse"]["calls"].values()) == 2


def differing(rank, size):
    sizes = (100, 8) if rank else (8, 100)
    return caught(lambda: dist.all_reduce(torch.ones(sizes).to_sparse(1)))


def test_tensors_of_other_shapes_are_refused(engine):
    for message, kind, seconds in values(run_ranks(differing, 2)):
        assert kind == "Disagreement", message
        assert "rank 0: all_reduce sum sparse float32 (8, 100)" in message
        assert "rank 1: all_reduce sum sparse float32 (100, 8)" in message
        assert seconds < 10


def one_is_dense(rank, size):
    tensor = torch.ones(100, 8)
    return caught(lambda: dist.all_reduce(tensor if rank else tensor.to_sparse(1)))


def test_a_dense_tensor_at_one_rank_is_refused(engine):
    for message, kind, _ in values(run_ranks(one_is_dense, 2)):
        assert kind == "Disagreement", message


def memory_of_a_large_one(rank, size):
    # 2 TB if it were dense.
    indices = torch.tensor([[5, 4_000_000_000 + rank]])
    values = torch.ones(2, 64)
    shape = 8_000_000_000, 64
    tensor = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
    dist.all_reduce(tensor)
    return tensor.indices()[0].tolist(), tensor.values()[:, 0].tolist()


def test_more_rows_than_an_int32_counts(engine):
    for rows, first in values(run_ranks(memory_of_a_large_one, 2)):
        assert rows == [5, 4_000_000_000, 4_000_000_001]
        assert first == [2, 1, 1]


BAD = {
    # Indices, shape, whether the tensor is said to be coalesced, the message.
    "beyond the end": ([[3, 100]], (100,), True, "index 100 in dimension 0"),
    "before the start": ([[-1, 3]], (100,), True, "index -1 in dimension 0"),
    "in the second dimension": ([[0, 1], [70, 2]], (60, 70), True, "index 70 in dimension 1"),
    # As a flat number it is another row, (1, 0).
    "in the second, not coalesced": ([[1, 0], [0, 70]], (60, 70), False, "index 70 in dimension 1"),
    "twice": ([[3, 3]], (100,), True, "index [3], with the value [10.0], after the index [3]"),
    "twice, in a list": ([[3, 3]], (1_000_000,), True, "after the index [3]"),
    "descending": ([[5, 3], [1, 2]], (60, 70), True, "index [3, 2], with the value [10.0], after"),
}


def with_a_bad_index(rank, size):
    found = []
    for indices, shape, coalesced, _ in BAD.values():
        group = dist.new_group(timeout=timedelta(seconds=20))
        right = torch.tensor([[2, 7]] * len(shape))
        values = torch.tensor([1.0, 10.0])
        own = torch.tensor(indices) if rank == 1 else right
        tensor = torch.sparse_coo_tensor(
            own, values, shape, is_coalesced=coalesced, check_invariants=False
        )
        found.append(caught(partial(dist.all_reduce, tensor, group=group)))
    return found


def test_indices_outside_the_shape_are_refused_at_every_rank(engine):
    for found in values(run_ranks(with_a_bad_index, 2)):
        for (message, kind, seconds), (*_, what) in zip(found, BAD.values(), strict=True):
            assert kind != "nothing raised"
            assert what in message
            assert seconds < 15


def nested(rank, size):
    found: list[float] = []

    def handle(*_):
        dense = torch.ones(1)
        dist.all_reduce(dense)
        found.append(dense.item())

    signal.signal(signal.SIGUSR1, handle)
    tensor = torch.ones(50).to_sparse()
    dist.barrier()
    if rank == 1:
        time.sleep(0.5)
    elif rank == 0:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
    dist.all_reduce(tensor)
    if rank != 0:
        handle()
    after = torch.ones(3)
    dist.all_reduce(after)
    return found, tensor.to_dense().tolist(), after.tolist()


def test_what_a_signal_handler_calls_comes_after_a_sum_of_several_steps(engine):
    assert values(run_ranks(nested, 3)) == [([3.0], [3.0] * 50, [3.0] * 3)] * 3
