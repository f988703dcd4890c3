"""Training with DistributedDataParallel: right, repeatable to the bit, and cleanly failing."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import afflux
from tests.support.host.ranks import run_ranks, values
from tests.support.host.training import network, steps, weights


def train(rank, _size):
    # Small buckets: several operations in flight.
    return steps(DistributedDataParallel(network(), bucket_cap_mb=0.01), rank)


def train_with_gloo(rank, _size):
    gloo = dist.new_group(backend="gloo")
    return steps(DistributedDataParallel(network(), process_group=gloo, bucket_cap_mb=0.01), rank)


def test_loss_and_shared_memory_change_no_bit():
    soft = {"AFFLUX_AGGREGATOR": "soft://"}
    clean = values(run_ranks(train, 3, environment=soft))
    lossy = values(run_ranks(train, 3, environment={**soft, "AFFLUX_TEST_LOSS": "0.03"}))
    shared = values(run_ranks(train, 3, environment={"AFFLUX_AGGREGATOR": "shm://"}))
    for each in [*clean[1:], *lossy, *shared]:
        np.testing.assert_array_equal(each.view(np.uint32), clean[0].view(np.uint32))
    gloo = values(run_ranks(train_with_gloo, 3))
    np.testing.assert_allclose(clean[0], gloo[0], atol=1e-6)


def train_with_our_hook(rank, _size):
    gloo = dist.new_group(backend="gloo")
    model = DistributedDataParallel(network(), process_group=gloo, bucket_cap_mb=0.01)
    model.register_comm_hook(None, afflux.ddp_hook)
    result = steps(model, rank)
    return result, afflux.statistics()["operations_engine"]


def test_our_hook_under_a_gloo_model():
    direct = values(run_ranks(train_with_gloo, 2))
    for result, operations in values(run_ranks(train_with_our_hook, 2)):
        np.testing.assert_allclose(result, direct[0], atol=1e-6)
        assert operations >= 6


def train_with_torch_hooks(rank, _size):
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    half = steps(model, rank)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    state = powerSGD_hook.PowerSGDState(
        process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return half, steps(model, rank)


def test_hooks_of_torch():
    got = values(run_ranks(train_with_torch_hooks, 2))
    for one, other in zip(got[0], got[1], strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(one).all()


def train_sparsely(rank, _size):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(100, 8, sparse=True), torch.nn.Linear(8, 2))
    ddp = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        optimiser.zero_grad()
        ddp(torch.tensor([[rank, step, 50]])).sum().backward()
        optimiser.step()
    return weights(model), afflux.statistics()["gloo"]


def test_sparse_embeddings():
    got = values(run_ranks(train_sparsely, 2))
    np.testing.assert_array_equal(got[0][0], got[1][0])
    assert "all_reduce float32" not in got[0][1]


def train_until_a_rank_leaves(rank, _size):
    model = DistributedDataParallel(network())
    steps(model, rank, 2)
    if rank == 1:
        # It goes its own way.
        dist.barrier()
        return "no error"
    try:
        steps(model, rank, 2)
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.usefixtures("engine")
def test_backward_raises_when_ranks_disagree():
    outcomes = run_ranks(train_until_a_rank_leaves, 2)
    assert outcomes[0].kind == ""
    assert "rank 1: barrier" in outcomes[0].value
    assert outcomes[1].kind == "Disagreement"


def fail_in_the_first_backward(rank, _size):
    model = DistributedDataParallel(network())
    if rank == 1:
        dist.all_reduce(torch.ones(1))
        return "no error"
    try:
        model(torch.randn(4, 20)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.usefixtures("engine")
def test_the_first_backward_may_fail():
    # Where an exception travels as a value, DDP's reducer crashes here.
    outcomes = run_ranks(fail_in_the_first_backward, 2)
    assert outcomes[0].kind == ""
    assert "rank 1: " in outcomes[0].value


def train_sharded(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(1)
    first = torch.nn.Linear(8, 16)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Linear(16, 4))
    fully_shard(model, mesh=mesh)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        model(torch.ones(2, 8) * (rank + 1)).sum().backward()
        optimiser.step()
    return float(first.weight.full_tensor().sum().detach())


@pytest.mark.slow
def test_fully_sharded():
    got = values(run_ranks(train_sharded, 2))
    assert got[0] == got[1]
    assert np.isfinite(got[0])


class TableAndHeads(torch.nn.Module):
    """Looks up rows of a sparse table, and uses one of two heads."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(500, 70, sparse=True)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(70, 2) for _ in "ab")

    def forward(self, head, rows):
        return self.heads[head](self.table(rows).sum(0))


def head_and_rows(step, rank):
    # Nobody needs head 1 in the first step, then some ranks do. Rank 2 has no rows in one step.
    rows = [] if (step, rank) == (1, 2) else [rank, step, 50]
    return int(step > 0 and rank <= step), torch.tensor(rows, dtype=torch.int64)


def train_with_unused_heads(rank, size):
    torch.manual_seed(0)
    model = TableAndHeads()
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        optimiser.zero_grad()
        ddp(*head_and_rows(step, rank)).sum().backward()
        optimiser.step()
    return weights(model)


def test_sparse_tables_where_parameters_are_unused_and_a_rank_has_no_rows(engine):
    got = values(run_ranks(train_with_unused_heads, 3))
    torch.manual_seed(0)
    model = TableAndHeads()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimiser.zero_grad()
        for rank in range(3):
            (model(*head_and_rows(step, rank)).sum() / 3).backward()
        optimiser.step()
    for weights_of_rank in got:
        np.testing.assert_array_equal(weights_of_rank, got[0])
        np.testing.assert_allclose(weights_of_rank, weights(model), rtol=1e-4, atol=1e-5)
