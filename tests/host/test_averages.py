"""Averages, whichever way a call takes: Gloo has none, so the layer above it divides."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

import afflux
from tests.support.host.ranks import run_ranks, values

SIZE = 3
COUNT = 4


def made(rank, dtype):
    """Return elements that differ by rank and whose means are not whole numbers, of both signs."""
    values = torch.arange(SIZE * COUNT, dtype=torch.float64) * (rank + 1) - 11 * rank
    return values.to(dtype)


def mean(dtype):
    total = torch.stack([made(rank, dtype) for rank in range(SIZE)]).sum(0)
    rounding = None if dtype.is_floating_point or dtype.is_complex else "trunc"
    return torch.div(total, SIZE, rounding_mode=rounding)


def average(rank, _size, dtype):
    group = dist.new_group()
    got = []
    for is_async in (False, True):
        asked = {"op": dist.ReduceOp.AVG, "group": group, "async_op": is_async}
        whole, parts = made(rank, dtype), torch.zeros(COUNT, dtype=dtype)
        part = parts.clone()
        works = [
            dist.all_reduce(whole, **asked),
            dist.reduce_scatter(parts, list(made(rank, dtype).chunk(SIZE)), **asked),
            dist.reduce_scatter_tensor(part, made(rank, dtype), **asked),
        ]
        for work in works:
            if work is not None:
                work.wait()
        got.append((whole.numpy(), parts.numpy(), part.numpy()))
    return afflux.statistics(group)["engine"], got


@pytest.mark.parametrize(
    ("dtype", "aggregator", "expected"),
    # The last: no engine sums it, so that it is Gloo's where ranks share memory, too.
    [
        (torch.float32, "gloo://", "gloo"),
        (torch.int64, "gloo://", "gloo"),
        (torch.complex64, "auto", "shm"),
    ],
)
def test_an_average_that_gloo_sums(dtype, aggregator, expected):
    whole = mean(dtype)
    environment = {"AFFLUX_AGGREGATOR": aggregator}
    got = values(run_ranks(average, SIZE, dtype, environment=environment))
    for rank, (engine, rounds) in enumerate(got):
        assert engine == expected
        for all_reduced, *scattered in rounds:
            np.testing.assert_allclose(all_reduced, whole, rtol=1e-6)
            for each in scattered:
                np.testing.assert_allclose(each, whole.chunk(SIZE)[rank], rtol=1e-6)
