"""The backend in Python, which torch from 2.14 on takes on a machine without a C++ compiler."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.torch_version import __version__ as torch_version

import afflux
from afflux.group_statistics import group_of
from tests.support.host.ranks import caught, run_ranks, values

pytestmark = pytest.mark.skipif(torch_version < "2.14", reason="not in this version of torch")

_CPU = torch.device("cpu")
_IN_PYTHON = {"AFFLUX_ADAPTER": "python"}


def use_as_a_backend(rank, size):
    from afflux.adapters.python_backend import PythonBackend

    group = dist.group.WORLD
    backend = group._get_backend(_CPU)
    assert isinstance(backend, PythonBackend)
    assert (backend.name(), dist.get_backend()) == ("afflux", "afflux")
    assert group_of(group) is backend.core

    seen = []
    group.register_pre_hook(1, lambda call: seen.append(str(call.name)))
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.get_future().value()[0] is not None
    out = torch.empty(size)
    dist.all_gather_into_tensor(out, torch.full((1,), float(rank)))
    outs = [torch.empty(size), torch.empty(size)]
    with dist._coalescing_manager(group=group):
        for each in outs:
            dist.all_gather_into_tensor(each, torch.full((1,), float(rank)))
    assert outs[1].tolist() == out.tolist() == [0, 1]
    assert tensor.tolist() == [4] * 4
    assert seen[:2] == ["HookOpName.ALLREDUCE"] * 2
    assert len(seen) >= 4
    assert group._get_sequence_number_for_group() == backend.core.sequence >= 4

    named = [each for each in dir(backend) if "supports_" in each and not each.endswith("_alloc")]
    assert {each for each in named if getattr(backend, each)} == {"supports_splitting"}

    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=7))
    assert backend.core.timeout_s == 7
    dist.monitored_barrier(timeout=timedelta(seconds=5))
    message, _, _ = caught(lambda: dist.recv(tensor))
    assert "recv without a source" in message
    return afflux.statistics()["rank"]


def test_torch_reaches_it_as_any_backend():
    assert values(run_ranks(use_as_a_backend, 2, environment=_IN_PYTHON)) == [0, 1]


def train_with_the_built_in_hook(rank, size):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    trained = DistributedDataParallel(model)
    trained._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    for _ in range(2):
        model.zero_grad()
        trained(torch.full((2, 4), rank + 1.0)).sum().backward()
    return model.weight.grad.tolist()


def test_the_built_in_hook_gets_a_typed_future():
    got = values(run_ranks(train_with_the_built_in_hook, 2, environment=_IN_PYTHON))
    # Of two rows of ones and two rows of twos.
    assert got == [[[3.0] * 4] * 4] * 2


def use_under_detail(rank, size):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group()
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    core = group_of(group)
    dist.destroy_process_group(group)
    return tensor.tolist(), core.size, core.closed


def test_detail_wraps_it():
    got = values(run_ranks(use_under_detail, 2, environment=_IN_PYTHON))
    assert got == [([2, 2, 2], 2, True)] * 2


def split(rank, size):
    dist.group.WORLD.bound_device_id = torch.device("cpu:0")
    group = dist.split_group(split_ranks=[[0, 2], [1]])
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor, group=group)
    partial, _, _ = caught(lambda: dist.split_group(split_ranks=[[0, 2]]))
    return tensor[0].item(), group_of(group).global_ranks, partial


@pytest.mark.skipif(torch_version < "2.15", reason="torch refuses it for CPUs")
def test_it_splits():
    got = values(run_ranks(split, 3, environment=_IN_PYTHON))
    assert [each[:2] for each in got] == [(2, [0, 2]), (1, [1]), (2, [0, 2])]
    assert "rank 1 is in none of the groups" in got[1][2]
