"""Sharded models: FSDP in both versions, tensor parallelism, DTensor."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.conformance.script import FLOAT_SUM, sample, script
from tests.conformance.scripts.data_parallel import TRAINED, net, train


def _full(model: nn.Module) -> list[torch.Tensor]:
    return [
        each.full_tensor().detach() if isinstance(each, DTensor) else each.detach()
        for each in model.parameters()
    ]


@script(bound=TRAINED)
def fsdp1(rank: int, size: int, backend: str) -> Any:
    """Train with FSDP, version 1, layer by layer."""
    model = FSDP(
        net(),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    train(model, rank)
    with FSDP.summon_full_params(model):
        return [each.detach().clone() for each in model.parameters()]


@script(bound=TRAINED)
def fsdp1_options(rank: int, size: int, backend: str) -> Any:
    """Train with FSDP, version 1: gradients only sharded, clipped."""
    model = FSDP(
        net(),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        device_id=torch.device("cpu"),
    )
    model(sample(rank, 8, 6)).square().mean().backward()
    norm = model.clip_grad_norm_(0.1)
    return [norm, [each.grad for each in model.parameters()]]


@script(bound=TRAINED)
def fsdp2(rank: int, size: int, backend: str) -> Any:
    """Train with fully_shard."""
    model = net()
    mesh = init_device_mesh("cpu", (size,))
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, rank)
    return _full(model)


@script(bound=TRAINED)
def fsdp2_clipped(rank: int, size: int, backend: str) -> Any:
    """Accumulate and clip by the norm of DTensors."""
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    model.set_requires_gradient_sync(False)
    model(sample(rank, 8, 6)).square().mean().backward()
    model.set_requires_gradient_sync(True)
    model(sample(rank + 5, 8, 6)).square().mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    assert isinstance(norm, DTensor)
    grads = [each.grad.full_tensor() for each in model.parameters()]
    return [norm.full_tensor(), grads]


@script(bound=3e-2)
def fsdp2_bfloat16(rank: int, size: int, backend: str) -> Any:
    """Gather in bfloat16 and reduce in float32."""
    model = net()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)), mp_policy=policy)
    train(model, rank)
    return _full(model)


@script(bound=TRAINED, ranks_min=2)
def hsdp(rank: int, size: int, backend: str) -> Any:
    """Shard within pairs and replicate among them."""
    model = net()
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    train(model, rank)
    return _full(model)


@script(bound=FLOAT_SUM)
def dtensor_redistribute(rank: int, size: int, backend: str) -> Any:
    """Go from each placement to each other."""
    mesh = init_device_mesh("cpu", (size,))
    whole = sample(0, 4 * size, 2 * size)
    values = []
    for start in (Shard(0), Shard(1), Replicate()):
        for end in (Shard(0), Shard(1), Replicate()):
            moved = distribute_tensor(whole, mesh, [start]).redistribute(mesh, [end])
            values.append(moved.to_local().clone())
    for end in (Shard(0), Replicate()):
        part = DTensor.from_local(sample(rank, 4 * size, 2), mesh, [Partial()])
        values.append(part.redistribute(mesh, [end]).to_local().clone())
    return values


@script(bound=FLOAT_SUM)
def dtensor_arithmetic(rank: int, size: int, backend: str) -> Any:
    """Compute on shards of unequal size: products, sums, means, norms."""
    mesh = init_device_mesh("cpu", (size,))
    a = distribute_tensor(sample(0, 4 * size + 1, 6), mesh, [Shard(0)])
    b = distribute_tensor(sample(1, 6, 3), mesh, [Replicate()])
    product = a @ b
    return [
        each.full_tensor()
        for each in (product, product.sum(), product.mean(0), product.norm(), a.max())
    ]


@script()
def dtensor_in_all_reduce(rank: int, size: int, backend: str) -> Any:
    """Pass a DTensor to the plain all_reduce: an answer, not a crash."""
    mesh = init_device_mesh("cpu", (size,))
    tensor = distribute_tensor(torch.ones(2 * size), mesh, [Shard(0)])
    try:
        dist.all_reduce(tensor)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return "refused"
    return tensor.to_local().clone()


class Block(nn.Module):
    """A feed-forward block with a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the block."""
        result: torch.Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return result


def _block(plan: Any, rank: int, size: int) -> Any:
    torch.manual_seed(3)
    mesh = init_device_mesh("cpu", (size,))
    model = parallelize_module(Block(), mesh, plan)
    out = model(sample(0, 2, 4 * size, 8))
    if isinstance(out, DTensor):
        out = out.full_tensor()
    out.square().mean().backward()
    grads = [
        each.grad.full_tensor() if isinstance(each.grad, DTensor) else each.grad
        for each in model.parameters()
    ]
    return [out.detach(), grads]


@script(bound=TRAINED)
def tensor_parallel(rank: int, size: int, backend: str) -> Any:
    """Split a block's layers by columns and rows."""
    return _block({"up": ColwiseParallel(), "down": RowwiseParallel()}, rank, size)


@script(bound=TRAINED)
def sequence_parallel(rank: int, size: int, backend: str) -> Any:
    """Split a block by columns, rows, and its norm along the sequence."""
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    torch.manual_seed(3)
    mesh = init_device_mesh("cpu", (size,))
    model = parallelize_module(Block(), mesh, plan)
    mine = distribute_tensor(sample(0, 2, 4 * size, 8), mesh, [Shard(1)])
    out = model(mine)
    assert isinstance(out, DTensor)
    out.full_tensor().square().mean().backward()
    return [out.full_tensor().detach(), model.up.weight.grad.full_tensor()]


@script(bound=TRAINED, ranks_min=2)
def fsdp2_with_tensor_parallel(rank: int, size: int, backend: str) -> Any:
    """Split layers within pairs and shard them among the pairs."""
    torch.manual_seed(3)
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = parallelize_module(Block(), mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        model(sample(rank // 2 + 10 * step, 4, 8)).square().mean().backward()
        optimizer.step()
    return _full(model)


@script(bound=TRAINED, slow=True)
def fsdp2_compiled(rank: int, size: int, backend: str) -> Any:
    """Compile a model that fully_shard has wrapped."""
    torch._dynamo.reset()
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    train(torch.compile(model, backend="aot_eager"), rank, steps=2)
    return _full(model)
