"""Schemes as communication hooks of DistributedDataParallel."""

import torch
from torch._C._distributed_c10d import GradBucket

from afflux.schemes.scheme import Scheme

__all__ = ["scheme_hook"]


def scheme_hook(state: Scheme, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket by a scheme, as a communication hook.

        scheme = afflux.hooks.Scheme(afflux.hooks.GlobalTopK(density=0.001))
        ddp.register_comm_hook(scheme, afflux.hooks.scheme_hook)

    Args:
        state: Used for this model alone.
        bucket: Flat gradients, float32, float16 or bfloat16. (DDP calls by this name.)
    """
    device = bucket.buffer().device
    devices: list[int | str | torch.device] = [] if device.type == "cpu" else [device]
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    future.set_result(state.average_bucket(bucket))
    return future
