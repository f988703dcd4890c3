"""Tensors that all ranks reach: the same bits as others, in one pass, given back in the end."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux
from tests.support.host.ranks import caught, run_ranks, values
from tests.support.host.training import network, steps, weights

SHM = {"AFFLUX_AGGREGATOR": "shm://"}


def reduce_both_ways(rank, _size):
    generator = torch.Generator().manual_seed(rank)
    results = []
    for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.float64):
        for count in (5, 1000, 100_001):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                ordinary = (100 * torch.randn(count, generator=generator)).to(dtype)
                reachable = afflux.empty(count, dtype=dtype)
                assert not reachable.any()
                reachable.copy_(ordinary)
                dist.all_reduce(ordinary, op=op)
                dist.all_reduce(reachable, op=op)
                bits = [each.view(torch.uint8).numpy().tobytes() for each in (ordinary, reachable)]
                results.append(bits[0] == bits[1])
    return results, afflux.statistics().get("one_pass")


def test_the_same_bits():
    for results, one_pass in values(run_ranks(reduce_both_ways, 3, environment=SHM)):
        assert all(results)
        # Small ones have a shorter way.
        assert one_pass > 0


def shapes(rank, _size):
    tensors = [
        afflux.empty(3, 4), afflux.empty((3, 4)), afflux.empty([3, 4], dtype=torch.int32),
        afflux.empty(()), afflux.empty(0, 5),
    ]  # fmt: skip
    for tensor in tensors:
        tensor.add_(rank)
        dist.all_reduce(tensor)
    part = afflux.empty(300_000)[1000:200_000]
    part += 1
    dist.all_reduce(part)
    return [tuple(each.shape) for each in tensors], tensors[2].tolist(), part.sum().item()


@pytest.mark.usefixtures("engine")
def test_shapes_and_parts():
    for sizes, integers, total in values(run_ranks(shapes, 2)):
        assert sizes == [(3, 4), (3, 4), (3, 4), (), (0, 5)]
        assert integers == [[1] * 4] * 3
        assert total == 2 * 199_000


def free(_rank, _size):
    before = afflux.statistics()["reachable_bytes"]
    tensor = afflux.empty(1_000_000)
    view = tensor[10:20]
    del tensor
    held = afflux.statistics()["reachable_bytes"]
    del view
    after = afflux.statistics()["reachable_bytes"]
    kept = afflux.empty(1000)
    kept += 3
    dist.destroy_process_group()
    return before, held, after, kept.sum().item()


def test_memory_goes_back_with_the_last_tensor():
    for before, held, after, kept in values(run_ranks(free, 2, environment=SHM)):
        assert before == after == 0
        assert held >= 4_000_000
        assert kept == 3000


def disagree(rank, _size):
    return caught(lambda: afflux.empty(100 + rank))


def test_ranks_that_ask_for_different_tensors():
    for message, kind, _ in values(run_ranks(disagree, 2, environment=SHM)):
        assert kind == "Disagreement"
        assert "rank 1: empty float32 101" in message


def by_hand(rank, _size):
    model = network()
    gradients = afflux.reachable_gradients(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(6):
        x = torch.randn(16, 20, generator=generator)
        gradients.zero()
        model(x).square().mean().backward()
        gradients.all_reduce()
        optimiser.step()
    optimiser.zero_grad()
    return weights(model), afflux.statistics().get("one_pass"), caught(gradients.all_reduce)


def by_ddp(rank, _size):
    return steps(DistributedDataParallel(network(), bucket_cap_mb=0.01), rank)


def by_our_hook(rank, _size, as_views):
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01, gradient_as_bucket_view=as_views)
    model.register_comm_hook(afflux.ReachableBuckets(), afflux.reachable_hook)
    return steps(model, rank), afflux.statistics().get("reachable_bytes")


def test_training_with_reachable_gradients():
    want = values(run_ranks(by_ddp, 2, environment=SHM))[0]
    got = values(run_ranks(by_hand, 2, environment=SHM))
    np.testing.assert_array_equal(got[0][0], got[1][0])
    for result, one_pass, (message, kind, _) in got:
        # Blocks are cut elsewhere than in DDP's buckets.
        np.testing.assert_allclose(result, want, atol=1e-6)
        assert one_pass >= 6
        assert kind == "ValueError"
        assert "zero()" in message


@pytest.mark.parametrize("as_views", [False, True])
def test_training_with_reachable_buckets(as_views):
    want = values(run_ranks(by_ddp, 2, environment=SHM))[0]
    for result, in_use in values(run_ranks(by_our_hook, 2, as_views, environment=SHM)):
        np.testing.assert_array_equal(result.view(np.uint32), want.view(np.uint32))
        assert in_use > 0
