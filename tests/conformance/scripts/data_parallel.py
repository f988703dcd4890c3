"""DistributedDataParallel, in the ways in which it is used."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.conformance.script import FLOAT_SUM, refusal, sample, script

TRAINED = 5e-6
"""Bound for parameters after a few steps."""


class Net(nn.Module):
    """Two layers, and one that is used only if asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.second = nn.Linear(16, 4)
        self.other = nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, other: bool = False) -> torch.Tensor:
        """Compute either the second or the other layer."""
        hidden = torch.relu(self.first(x))
        result: torch.Tensor = self.other(hidden) if other else self.second(hidden)
        return result


def net(seed: int = 3) -> nn.Module:
    """Return two layers with fixed parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model: nn.Module, rank: int, steps: int = 3, **call: Any) -> list[torch.Tensor]:
    """Take some steps of SGD on this rank's data; return the parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(sample(rank + 10 * step, 8, 6), **call).square().mean().backward()
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


@script(bound=TRAINED)
def ddp(rank: int, size: int, backend: str) -> Any:
    """Train a small network; parameters begin as rank 0's."""
    return train(DDP(net(rank)), rank)


@script(bound=TRAINED)
def ddp_gradient_as_bucket_view(rank: int, size: int, backend: str) -> Any:
    """Train with gradients inside the buckets, of which there are several."""
    model = DDP(net(), gradient_as_bucket_view=True, bucket_cap_mb=0.0002)
    return train(model, rank)


@script(bound=TRAINED)
def ddp_static_graph(rank: int, size: int, backend: str) -> Any:
    """Train with a graph that does not change."""
    return train(DDP(net(), static_graph=True), rank)


@script(bound=TRAINED)
def ddp_find_unused_parameters(rank: int, size: int, backend: str) -> Any:
    """Train with parameters that some rank, or no rank, uses."""
    torch.manual_seed(3)
    model = DDP(Net(), find_unused_parameters=True)
    both = train(model, rank, steps=2, other=rank == 0)
    neither = train(model, rank, steps=2, other=False)
    return [both, neither]


@script(bound=TRAINED)
def ddp_no_sync(rank: int, size: int, backend: str) -> Any:
    """Accumulate gradients over micro-batches, synchronising the last."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        with model.no_sync():
            for micro in range(3):
                model(sample(rank + 10 * step + micro, 4, 6)).square().mean().backward()
        model(sample(rank + 99, 4, 6)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return [each.detach() for each in model.parameters()]


@script(bound=TRAINED)
def ddp_join(rank: int, size: int, backend: str) -> Any:
    """Train on uneven numbers of batches."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for step in range(2 + 2 * rank):
            optimizer.zero_grad()
            model(sample(rank + 10 * step, 4, 6)).square().mean().backward()
            optimizer.step()
    return [each.detach() for each in model.parameters()]


@script(bound=TRAINED)
def ddp_join_refused(rank: int, size: int, backend: str) -> Any:
    """Stop all ranks when one has no more batches."""
    model = DDP(net())

    def uneven() -> None:
        with model.join(throw_on_early_termination=True):
            for step in range(2 + rank):
                model(sample(rank + 10 * step, 4, 6)).square().mean().backward()

    return refusal(uneven)


def _hooked(rank: int, hook: Callable[..., Any], state: Any = None) -> Any:
    model = DDP(net(), bucket_cap_mb=0.0002)
    model.register_comm_hook(state, hook)
    return train(model, rank)


@script(bound=TRAINED)
def hook_all_reduce(rank: int, size: int, backend: str) -> Any:
    """Average gradients by the hook in Python."""
    return _hooked(rank, default_hooks.allreduce_hook)


@script(bound=5e-3)
def hook_fp16(rank: int, size: int, backend: str) -> Any:
    """Compress gradients to float16 in Python."""
    return _hooked(rank, default_hooks.fp16_compress_hook)


@script(bound=3e-2)
def hook_bf16(rank: int, size: int, backend: str) -> Any:
    """Compress gradients to bfloat16 in Python; torch keeps its own hook for GPUs."""

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        compressed = bucket.buffer().to(torch.bfloat16).div_(size)
        work = dist.all_reduce(compressed, async_op=True)
        assert work is not None

        def back(future: Any) -> torch.Tensor:
            return bucket.buffer().copy_(future.value()[0])

        result: torch.futures.Future[torch.Tensor] = work.get_future().then(back)
        return result

    refused = refusal(lambda: _hooked(rank, default_hooks.bf16_compress_hook), TypeError)
    return [refused, _hooked(rank, hook)]


@script(bound=1e-4)
def hook_power_sgd(rank: int, size: int, backend: str) -> Any:
    """Send low-rank factors, PowerSGD."""
    state = power_sgd.PowerSGDState(
        dist.group.WORLD, matrix_approximation_rank=2, start_powerSGD_iter=2
    )
    model = DDP(net())
    model.register_comm_hook(state, power_sgd.powerSGD_hook)
    return train(model, rank, steps=5)


@script(bound=TRAINED)
def hook_of_a_user(rank: int, size: int, backend: str) -> Any:
    """Divide first, sum asynchronously, and chain on the future."""

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        tensor = bucket.buffer().div_(size)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        result: torch.futures.Future[torch.Tensor] = work.get_future().then(
            lambda future: future.value()[0]
        )
        return result

    return _hooked(rank, hook)


@script(bound=TRAINED)
def builtin_hook_all_reduce(rank: int, size: int, backend: str) -> Any:
    """Average gradients by the built-in hook."""
    model = DDP(net())
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    return train(model, rank)


@script(bound=5e-3)
def builtin_hook_fp16(rank: int, size: int, backend: str) -> Any:
    """Compress gradients by the built-in hook, in C++."""
    model = DDP(net())
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return train(model, rank)


@script()
def sync_batch_norm(rank: int, size: int, backend: str) -> Any:
    """Convert to SyncBatchNorm, which refuses CPU tensors."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(
        nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    )
    return refusal(lambda: DDP(model)(sample(rank, 4, 6)), ValueError, RuntimeError)


class MixedNet(nn.Module):
    """Parameters of three types."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8).double()
        self.second = nn.Linear(8, 8).float()
        self.third = nn.Linear(8, 4).bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute with casts between the layers."""
        hidden = torch.tanh(self.second(torch.tanh(self.first(x.double())).float()))
        result: torch.Tensor = self.third(hidden.bfloat16()).float()
        return result


@script(bound=2e-2)
def ddp_mixed_types(rank: int, size: int, backend: str) -> Any:
    """Train parameters of float64, float32 and bfloat16."""
    torch.manual_seed(3)
    return train(DDP(MixedNet()), rank)


@script(bound=TRAINED)
def ddp_compiled(rank: int, size: int, backend: str) -> Any:
    """Compile a DDP model, which splits the graph by buckets."""
    torch._dynamo.reset()
    model = torch.compile(DDP(net()), backend="aot_eager")
    return train(model, rank, steps=2)


@script(bound=TRAINED, slow=True)
def ddp_of_compiled(rank: int, size: int, backend: str) -> Any:
    """Wrap a compiled model in DDP."""
    torch._dynamo.reset()
    model = DDP(torch.compile(net(), backend="aot_eager"))
    return train(model, rank, steps=2)


@script(bound=TRAINED, slow=True, limit_s=180)
def ddp_compiled_by_inductor(rank: int, size: int, backend: str) -> Any:
    """Compile a DDP model with the default compiler."""
    torch._dynamo.reset()
    return train(torch.compile(DDP(net())), rank, steps=2)


@script(bound=TRAINED)
def ddp_sparse_embedding(rank: int, size: int, backend: str) -> Any:
    """Train an embedding whose gradients are sparse."""
    torch.manual_seed(3)
    model = DDP(nn.EmbeddingBag(20, 4, sparse=True, mode="sum"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        words = torch.tensor([[1, 2 + rank], [5 + step, 9]])
        model(words).square().mean().backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


@script(bound=TRAINED)
def ddp_buffers(rank: int, size: int, backend: str) -> Any:
    """Broadcast buffers before each forward pass, batch norm's among them."""
    torch.manual_seed(3 + rank)
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)))
    parameters = train(model, rank)
    with torch.no_grad():
        model(sample(0, 4, 6))
    return [parameters, [each.clone() for each in model.buffers()]]


@script(timeout_s=3.0)
def ddp_different_models(rank: int, size: int, backend: str) -> Any:
    """Wrap models of different shapes, by mistake: an error at every rank."""
    return refusal(lambda: DDP(nn.Linear(4, 4 + rank)))


@script(bound=TRAINED)
def ddp_frozen_and_checkpointed(rank: int, size: int, backend: str) -> Any:
    """Train with frozen parameters and recomputed activations."""
    from torch.utils.checkpoint import checkpoint

    model = net()
    next(iter(model.parameters())).requires_grad_(False)

    class Recomputed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return result

    wrapped = DDP(Recomputed())
    wrapped(sample(rank, 8, 6)).square().mean().backward()
    return [each.grad for each in wrapped.parameters()]


@script(bound=TRAINED)
def ddp_two_models(rank: int, size: int, backend: str) -> Any:
    """Train a generator and a discriminator, each with a group of its own."""
    first, second = (DDP(net(each), process_group=dist.new_group()) for each in (1, 2))
    x = sample(rank, 8, 6)
    (first(x).square().mean() + second(x).abs().mean()).backward()
    return [each.grad for model in (first, second) for each in model.parameters()]


@script(bound=TRAINED)
def ddp_against_one_process(rank: int, size: int, backend: str) -> Any:
    """Compare with one process that sees all data."""
    single = net()
    model = DDP(copy.deepcopy(single))
    model(sample(rank, 8, 6)).square().mean().backward()
    torch.cat([single(sample(each, 8, 6)) for each in range(size)]).square().mean().backward()
    for ours, its in zip(model.parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, its.grad)
    return [each.grad for each in model.parameters()]


@script(bound=FLOAT_SUM)
def sync_module_states(rank: int, size: int, backend: str) -> Any:
    """Broadcast parameters and buffers at the start, as FSDP and Lightning do."""
    from torch.distributed.utils import _sync_module_states, _verify_param_shape_across_processes

    model = net(rank)
    world = dist.distributed_c10d._get_default_group()
    _verify_param_shape_across_processes(world, list(model.parameters()))
    _sync_module_states(
        model, world, broadcast_bucket_size=1 << 20, src=0, params_and_buffers_to_ignore=set()
    )
    return [each.detach() for each in model.parameters()]


@script(bound=TRAINED)
def ddp_logging_data(rank: int, size: int, backend: str) -> Any:
    """Log DDP's data, as users print it, and count its rebuilt buckets."""
    model = DDP(net())
    train(model, rank)
    data = model._get_ddp_logging_data()
    return [data["world_size"], data["has_rebuilt_buckets"], data["bucket_sizes"]]
