"""A step of training with FSDP2: gathers of layers, and reduce-scatters of their gradients."""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from benchmarks.report.sides import Side

__all__ = ["sharded_side"]

_LAYERS = 4
_SAMPLES = 8
_RATE = 1.0
_TOLERANCE = 1e-4
"""Of the largest gradient of a parameter: what the order of additions may make different."""


def _made(width: int) -> nn.Sequential:
    torch.manual_seed(7)
    layers = [each for _ in range(_LAYERS) for each in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers)


def _backward(model: nn.Module, width: int, rank: int) -> None:
    data = torch.randn(_SAMPLES, width, generator=torch.Generator().manual_seed(rank))
    model(data).square().mean().backward()


def _gradients(model: nn.Module) -> list[torch.Tensor]:
    return [each.grad for each in model.parameters() if each.grad is not None]


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sharded_side(group: Any, size: int, rank: int, ranks: int) -> Side:
    """Return a step as users write it: gradients to none, forward, backward, optimizer.

    Args:
        group: Of FSDP2's mesh.
        size: Bytes of all layers, but for their biases.
        rank: Own rank.
        ranks: How many there are.
    """
    width = max(1, int((size / 4 / _LAYERS) ** 0.5))
    # torch takes meshes of the same ranks and names for one another.
    mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=(f"shard_{group.group_name}",))
    model = _made(width)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    shards = [_local(each) for each in model.parameters()]
    initial = [each.detach().clone() for each in shards]
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        _backward(model, width, rank)
        optimizer.step()

    def restore() -> None:
        with torch.no_grad():
            for shard, value in zip(shards, initial, strict=True):
                shard.copy_(value)

    def wrong() -> int:
        restore()
        optimizer.zero_grad(set_to_none=True)
        _backward(model, width, rank)
        alone = _made(width)
        for each in range(ranks):
            _backward(alone, width, each)
        count = 0
        for got, right in zip(_gradients(model), _gradients(alone), strict=True):
            mean = right / ranks
            # As FSDP2 shares out the first dimension.
            parts = mean.chunk(ranks)
            own = parts[rank] if rank < len(parts) else mean[:0]
            count += int((~((_local(got) - own).abs() <= _TOLERANCE * mean.abs().max())).sum())
        return count

    # It is not trained until its numbers mean nothing.
    return Side(call, wrong, restore, batch=64)
