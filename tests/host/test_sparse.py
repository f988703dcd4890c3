"""All-reduce of sparse tensors, beside torch's sum of the same tensors made dense."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.support.host.ranks import run_ranks, values

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
    return torch.sparse_coo_tensor(indices, values.to(dtype), shape)


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
