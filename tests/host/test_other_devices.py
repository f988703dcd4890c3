"""Tensors on devices that Afflux does not take, without such a device.

torch looks for a group's backend by what a tensor says of its device, and fails before it touches
any memory. So tensors that only say so meet the same code and text as on a GPU.
"""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d, utils
from torch.torch_version import __version__ as torch_version

from tests.support.host.ranks import run_ranks, values

RANKS = 2

ON_CUDA = (
    "{} at rank {}: the tensor is on cuda:0; the backend afflux takes CPU tensors: pass a copy, as "
    "tensor.cpu() makes it, or make the group by "
    'init_process_group("cpu:afflux,cuda:nccl"), in which nccl takes tensors on cuda'
)


class OnCuda(torch.Tensor):
    """A tensor without memory that says it is on a GPU."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (2,), device=torch.device("cuda:0"))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):  # type: ignore[override]
        # torch's kernels for tensors on a GPU.
        with torch._C._DisableTorchDispatch():
            return function(*args, **(kwargs or {}))


def refusal(call):
    """Return the error of a call, after which the group still sums."""
    with pytest.raises(Exception) as caught:
        call()
    after = torch.ones(3)
    dist.all_reduce(after)
    assert after.tolist() == [float(RANKS)] * 3
    error = caught.value
    return type(error).__name__, str(error), error.__suppress_context__


def refused(rank, _size):
    tensor, group = OnCuda(), distributed_c10d._get_default_group()
    beside = dist.new_group(backend="gloo")
    config = dist.get_backend_config(group), group._device_types
    told = [
        refusal(lambda: dist.all_reduce(tensor)),
        refusal(lambda: dist.all_gather([tensor] * RANKS, tensor, group=group)),
        refusal(lambda: dist.send(tensor, 1 - rank)),
    ]
    # In C++, where DistributedDataParallel begins.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "_verify_params_across_processes", lambda pg, of, _: pg.allreduce(of))
        told.append(refusal(lambda: utils._verify_param_shape_across_processes(group, [tensor])))
    _, gloo_text, _ = refusal(lambda: dist.all_reduce(tensor, group=beside))
    assert "afflux" not in gloo_text
    assert config == (dist.get_backend_config(group), group._device_types)
    assert config == ("cpu:afflux", [torch.device("cpu")])
    return told


def refused_on_meta(rank, _size):
    return refusal(lambda: dist.all_reduce(torch.ones(2, device="meta")))[:2]


@pytest.mark.parametrize(
    "adapter",
    [
        "native",
        pytest.param(
            "python",
            marks=pytest.mark.skipif(
                torch_version < "2.14", reason="torch calls the group past its dispatcher"
            ),
        ),
    ],
)
def test_a_tensor_on_a_gpu_is_refused_by_name_with_what_to_do(adapter):
    called = "all_reduce", "all_gather", "send", "DistributedDataParallel"
    assert values(run_ranks(refused, RANKS, environment={"AFFLUX_ADAPTER": adapter})) == [
        [("CallRefused", ON_CUDA.format(name, rank), True) for name in called]
        for rank in range(RANKS)
    ]


@pytest.mark.skipif(torch_version >= "2.14", reason="torch itself takes tensors on meta")
def test_a_call_past_the_dispatcher_is_refused_with_what_to_do():
    told = values(run_ranks(refused_on_meta, RANKS, environment={"AFFLUX_ADAPTER": "python"}))
    text = (
        "all_reduce sum float32 (2,): the tensor is on meta; the backend afflux takes CPU tensors: "
        "pass a copy, as tensor.cpu() makes it"
    )
    assert told == [("ValueError", text)] * RANKS
