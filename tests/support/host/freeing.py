"""Whether a group that has been destroyed is held by something."""

import gc
import time
import weakref

import torch.distributed as dist

from afflux.group_statistics import group_of

__all__ = ["destroyed_and_freed"]

_LIMIT_S = 10.0


def destroyed_and_freed() -> bool:
    """Destroy the default group, and return whether nothing holds it then."""
    group = weakref.ref(group_of(None))
    dist.destroy_process_group()
    deadline = time.monotonic() + _LIMIT_S
    while group() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    return group() is None
