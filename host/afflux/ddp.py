"""Communication hooks for DistributedDataParallel."""

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from afflux.reachable import empty

__all__ = ["ReachableBuckets", "ddp_hook", "reachable_hook"]


def ddp_hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket of gradients through Afflux, as a communication hook.

        group = torch.distributed.new_group(backend="afflux")
        ddp.register_comm_hook(group, afflux.ddp_hook)

    Args:
        state: A process group of backend "afflux", or None for the default group.
        bucket: Flat gradients; their buffer is overwritten by the average. (DDP calls by this
            name.)
    """
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, group=state, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


class ReachableBuckets:
    """The state of `reachable_hook`: for each of a model's buckets a reachable tensor of its size.

    Args:
        group: Of backend "afflux"; default: the default group.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self._tensors: dict[int, torch.Tensor] = {}

    def tensor_for(self, bucket: GradBucket) -> torch.Tensor:
        """Return the bucket's tensor; if it is new or has another size, make one, collectively."""
        buffer, index = bucket.buffer(), bucket.index()
        tensor = self._tensors.get(index)
        if tensor is None or tensor.shape != buffer.shape or tensor.dtype != buffer.dtype:
            # After the first step DDP groups gradients anew, and all buckets change.
            self._tensors.pop(index, None)
            tensor = empty(buffer.shape, dtype=buffer.dtype, group=self.group)
            self._tensors[index] = tensor
        if bucket.is_last():
            self._tensors = {key: self._tensors[key] for key in range(index + 1)}
        return tensor


def reachable_hook(
    state: ReachableBuckets, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket in memory that all ranks of the host reach, as a communication hook.

        ddp.register_comm_hook(afflux.ReachableBuckets(), afflux.reachable_hook)

    DDP's own buckets cannot lie there: it allocates them, and a bucket's `set_buffer` changes only
    what the hook sees. But a hook may return another tensor than the bucket's, and DDP takes the
    averages from that one. So each bucket costs one copy here, and its sum none.

    Args:
        state: Used for this model alone.
        bucket: Flat gradients. (DDP calls by this name.)
    """
    tensor = state.tensor_for(bucket)
    tensor.copy_(bucket.buffer())
    work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=state.group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
