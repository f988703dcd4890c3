"""Places in torch that ask which backend a group has: docs/torch_versions.md has them all."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from tests.support.host.ranks import run_ranks, values

RANKS = 2
STEPS = 4


def trained(hook=None, **options):
    """Return the parameters after some steps, of ZeRO's with a hook, else of Adam's."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8) for _ in range(3)]
    # Several buckets.
    model = DistributedDataParallel(
        torch.nn.Sequential(*layers), bucket_cap_mb=2e-4, gradient_as_bucket_view=True
    )
    inputs = torch.full((4, 8), dist.get_rank() + 1.0)
    optimizer: torch.optim.Optimizer
    if hook is None:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    else:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.Adam, overlap_with_ddp=True, lr=0.01
        )
        model.register_comm_hook(None, hook(allreduce_hook, model, optimizer, **options))
    # The hook learns of the buckets in the first two.
    for _ in range(STEPS + (0 if hook is None else 2)):
        model.zero_grad()
        model(inputs).sum().backward()
        if hook is None:
            optimizer.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def overlap(_rank, _size):
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook

    expected = trained()
    hooks = ddp_zero_hook.hook_with_zero_step, ddp_zero_hook.hook_with_zero_step_interleaved
    return [
        torch.allclose(trained(hook, shard_buckets=sharded), expected, atol=1e-6)
        for hook in hooks
        for sharded in (False, True)
    ]


def ask(rank, size):
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.nn import functional

    def gradient(gather):
        tensor = torch.ones(2, requires_grad=True)
        (gather(tensor) * (rank + 1)).sum().backward()
        return tensor.grad.tolist()

    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    # Rank 1 has no shard.
    sharded = sharded_tensor.ones(ChunkShardingSpec(0, ["rank:0/cpu"]), 6, 3)
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(3))
    with pytest.raises(RuntimeError, match="does not support device type cpu"):
        from torch.distributed import _symmetric_memory

        _symmetric_memory.empty(4, device=torch.device("cpu"))
    received = functional.all_to_all([torch.empty(1)] * size, [torch.ones(1)] * size)
    dist.monitored_barrier()
    beside = dist.new_group(backend="gloo")
    # A rank that ended now would break off the connections of one that still makes them.
    dist.barrier(beside)
    return {
        "logged": model._get_ddp_logging_data()["backend_name"],
        "profiled": profile._get_distributed_info()["backend"],
        "all_gather": gradient(lambda tensor: torch.cat(functional.all_gather(tensor))),
        "_all_gather_base": gradient(
            lambda tensor: functional._all_gather_base(torch.empty(2 * size), tensor)
        ),
        "all_to_all": [each.item() for each in received],
        "device": str(sharded.device),
        "to": str(sharded.to(torch.float64).dtype),
        "preferred": str(sharded._get_preferred_device()),
        "timeout": distributed_c10d._get_default_timeout(dist.get_backend()).total_seconds(),
        "uid": distributed_c10d._get_process_group_uid(distributed_c10d._get_default_group()),
        "mesh": dist.get_backend(init_device_mesh("cpu", (1, size)).get_group(1)),
        "beside": dist.get_backend(beside),
    }


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_zero_overlaps_with_ddp(adapter):
    outcomes = run_ranks(overlap, RANKS, environment={"AFFLUX_ADAPTER": adapter})
    assert values(outcomes) == [[True] * 4] * RANKS


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_places_that_ask_for_the_name(adapter):
    outcomes = run_ranks(ask, RANKS, environment={"AFFLUX_ADAPTER": adapter})
    assert (
        values(outcomes)
        == [
            {
                "logged": "afflux",
                "profiled": "afflux",
                "all_gather": [3.0, 3.0],
                "_all_gather_base": [3.0, 3.0],
                "all_to_all": [1.0, 1.0],
                "device": "cpu",
                "to": "torch.float64",
                "preferred": "cpu",
                "timeout": 1800.0,
                "uid": -1,
                "mesh": "afflux",
                "beside": "gloo",
            }
        ]
        * RANKS
    )
