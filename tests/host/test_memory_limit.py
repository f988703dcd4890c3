"""Under a container's memory limit: what the tensors need and little more is enough."""

import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux_drivers import _native
from afflux_drivers.errors import AffluxError
from tests.support.host.memory_limits import join, memory_limit
from tests.support.host.ranks import run_ranks, values

MIB = 1 << 20
TENSOR = 48 * MIB
SHARED = {"AFFLUX_AGGREGATOR": "shm://"}


def reduce_both_ways(rank, size, group):
    join(group)
    ordinary = torch.full((TENSOR // 4,), float(rank + 1))
    for _ in range(2):
        dist.all_reduce(ordinary)
    sums = [ordinary.min().item(), ordinary.max().item()]
    del ordinary
    reachable = afflux.empty(TENSOR // 4)
    reachable.fill_(float(rank + 1))
    dist.all_reduce(reachable)
    sums += [reachable.min().item(), reachable.max().item()]
    return sums, afflux.statistics()["engine"]


def test_the_tensors_and_a_segment_are_enough():
    ranks = 2
    # 4 MiB a rank for page tables, stacks and the interpreter's own new objects.
    with memory_limit(ranks * (TENSOR + 4 * MIB) + _native.shared_segment_bytes(ranks)) as group:
        results = values(run_ranks(reduce_both_ways, ranks, group, environment=SHARED))
    for sums, engine in results:
        assert engine == "shm"
        assert sums == [6.0, 6.0, 3.0, 3.0]


def touch_too_much(rank, size, group):
    if rank == 1:
        join(group)
        time.sleep(0.2)
        tensor = torch.ones(TENSOR // 4)
    else:
        tensor = torch.ones(TENSOR // 4)
    started = time.monotonic()
    with pytest.raises(AffluxError, match=r"rank 1") as caught:
        dist.all_reduce(tensor)
    return str(caught.value), time.monotonic() - started


def test_a_rank_killed_for_its_memory_is_named():
    with memory_limit(8 * MIB) as group:
        survivor, victim = run_ranks(touch_too_much, 2, group, environment=SHARED)
    assert victim.kind == "died"
    assert not survivor.failed, survivor.message
    text, seconds = survivor.value
    assert "rank(s) 1 ended" in text
    assert seconds < 10
