"""Find the backend of a process group of torch."""

from typing import Any

import torch
import torch.distributed as dist

__all__ = ["cpu_backend"]


def cpu_backend(group: Any) -> Any:
    """Return what carries out a group's calls for CPU tensors; None if nothing does.

    Args:
        group: Of torch; None for the default group.
    """
    found = dist.distributed_c10d._get_default_group() if group is None else group
    if hasattr(found, "core"):
        return found
    try:
        backend = found._get_backend(torch.device("cpu"))
    except (AttributeError, RuntimeError):
        return None
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it.
    return getattr(backend, "wrapped_pg", backend)
