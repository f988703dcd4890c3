"""What torch does where it asks for a backend by its name: docs/torch_versions.md has the list."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import c10d_logger, distributed_c10d
from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.nn import functional
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.support.host.ranks import run_ranks, values

ROUNDS = 4


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(*(torch.nn.Linear(40, 40) for _ in range(3)))


def trained(trained_model, step, rank):
    """Return the parameters after some rounds, as one tensor."""
    for number in range(ROUNDS):
        torch.manual_seed(10 * number + rank)
        trained_model(torch.randn(4, 40)).square().sum().backward()
        step()
        trained_model.zero_grad()
    return torch.cat([each.detach().reshape(-1) for each in trained_model.parameters()])


def with_zero_hook(hook, rank):
    module = model()
    ddp = DistributedDataParallel(module, bucket_cap_mb=0.005, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.01
    )
    ddp.register_comm_hook(None, hook(allreduce_hook, ddp, optimizer))
    return trained(ddp, lambda: None, rank)


def train_with_zero(rank, _size):
    ddp = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    before = torch.cat([each.detach().reshape(-1) for each in ddp.parameters()])
    # With the hooks, the first two backward passes only learn in which order buckets come.
    plain = trained(ddp, optimizer.step, rank)
    found = [
        with_zero_hook(hook, rank)
        for hook in (
            ddp_zero_hook.hook_with_zero_step,
            ddp_zero_hook.hook_with_zero_step_interleaved,
        )
    ]
    return [each.numpy() for each in (before, plain, *found)]


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_the_zero_hooks_step_while_ddp_sums(adapter):
    outcomes = values(run_ranks(train_with_zero, 2, environment={"AFFLUX_ADAPTER": adapter}))
    for first, second in zip(*outcomes, strict=True):
        assert (first == second).all()
    before, plain, *hooked = outcomes[0]
    for each in hooked:
        assert (each == hooked[0]).all()
        assert (each != before).any()
        assert abs(each - before).max() <= 1.5 * abs(plain - before).max()


def tell_names(rank, size):
    ones = torch.ones(2, requires_grad=True)
    sum(functional.all_gather(ones)).sum().backward()
    given = [torch.full((2,), float(rank), requires_grad=True) for _ in range(size)]
    taken = functional.all_to_all([torch.empty(2) for _ in range(size)], given)
    ddp = DistributedDataParallel(model())
    try:
        own = torch.ones(2, requires_grad=True)
        functional._all_gather_base(torch.empty(2 * size), own).sum().backward()
        refusal = ""
    except RuntimeError as error:
        refusal = str(error)
    return {
        "DDP's logging": ddp._get_ddp_logging_data()["backend_name"],
        "c10d's logging": c10d_logger._get_msg_dict("all_reduce")["backend"],
        "device of objects": str(distributed_c10d._get_object_coll_device()),
        "gradients of all_gather": ones.grad.tolist(),
        "all_to_all": [each.tolist() for each in taken],
        "_all_gather_base": refusal,
    }


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_names_and_what_hangs_on_them(adapter):
    for found in values(run_ranks(tell_names, 2, environment={"AFFLUX_ADAPTER": adapter})):
        assert found == {
            "DDP's logging": "afflux",
            "c10d's logging": "afflux",
            "device of objects": "cpu",
            "gradients of all_gather": [2.0, 2.0],
            "all_to_all": [[0.0, 0.0], [1.0, 1.0]],
            "_all_gather_base": "Backend not supported!",
        }


def log_with_gloo(_rank, _size):
    group = dist.new_group(backend="gloo")
    return DistributedDataParallel(model(), process_group=group)._get_ddp_logging_data()[
        "backend_name"
    ]


def test_another_backend_keeps_its_name():
    assert values(run_ranks(log_with_gloo, 2)) == ["gloo", "gloo"]
