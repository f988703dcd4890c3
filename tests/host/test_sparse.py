"""All-reduce of sparse tensors, beside torch's sum of the same tensors made dense."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_sums_are_those_of_dense_tensors(engine, dtype):
    got = values(run_ranks(sums, 3, dtype))
    for name in SHAPES:
        want = sum(drawn(name, rank, dtype).to_dense() for rank in range(3))
        for results in got:
            np.testing.assert_array_equal(results[name], want.numpy())


def test_gloo_alone_sums_them_as_well(monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "gloo://")
    test_sums_are_those_of_dense_tensors("gloo", torch.float32)


def averages(rank, size):
    tensor = drawn("few long rows", rank)
    kept = tensor.clone()
    work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True)
    work.wait()
    mean = tensor.to_dense()
    dist.all_reduce(kept)
    return (kept.to_dense() - mean * size).abs().max().item(), mean.abs().max().item()


def test_averages(engine):
    for difference, largest in values(run_ranks(averages, 3)):
        assert largest > 10
        assert difference < 1e-4


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
