"""A small model whose gradients are averaged by priority."""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from afflux.overlap.priorities import Priorities, priorities_hook

__all__ = ["backward", "small"]


def small(
    optimizer: Any = torch.optim.SGD, model: Any = None, lr: float = 0.1, **options: Any
) -> tuple[DistributedDataParallel, Any, Priorities]:
    """Return the model, with the same weights each time, its optimiser or None, and its state."""
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    ddp = DistributedDataParallel(model)
    made = optimizer(ddp.parameters(), lr=lr) if optimizer else None
    state = Priorities(ddp, made, **options)
    ddp.register_comm_hook(state, priorities_hook)
    return ddp, made, state


def backward(ddp: DistributedDataParallel) -> None:
    ddp(torch.ones(3, 4)).sum().backward()
