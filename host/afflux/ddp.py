"""Averages the gradients of a DDP model whose own group is another backend's."""

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

__all__ = ["ddp_hook"]


def ddp_hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: average one bucket of gradients through Afflux.

        group = torch.distributed.new_group(backend="afflux")
        ddp.register_comm_hook(group, afflux.ddp_hook)

    Args:
        state: A process group of backend "afflux", or None for the default group.
        bucket: Flat gradients; their buffer is overwritten by the average. (DDP calls by this
            name.)
    """
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, group=state, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
