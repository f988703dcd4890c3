"""Which adapter a group gets."""

import functools
import logging
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.torch_version import __version__ as torch_version

from afflux.adapters import native
from afflux.adapters.default_group import default_group
from afflux.adapters.process_group import AffluxProcessGroup
from afflux.adapters.python_backend import PythonBackend
from afflux.adapters.reconfigurable import create_reconfigurable
from afflux.group.settings.membership import (
    NATIVE,
    PYTHON_BACKEND,
    PYTHON_PROCESS_GROUP,
    Membership,
)

__all__ = ["create_backend", "create_process_group"]

_log = logging.getLogger("afflux")

_PYTHON_BACKENDS = "2.14"
"""The first version of torch that takes a backend in Python."""


def create_backend(options: Any, backend_options: Any = None) -> Any:
    """Make a group, as torch.distributed asks for it with `extended_api=True`.

    Args:
        options: torch's `_DistributedBackendOptions`.
        backend_options: `pg_options` of the caller; None for those of the default group.
    """
    adapter = _adapter()
    is_default = not dist.is_initialized()
    if backend_options is None and not is_default:
        backend_options = default_group.options
    membership = Membership(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id),
        list(options.global_ranks_in_group),
        backend_options,
        adapter,
    )
    # torch before 2.14 has no such option.
    if getattr(options, "enable_reconfigure", False):
        return _reconfigurable(membership, is_default)
    made = _MAKERS[adapter](membership)
    if is_default:
        default_group.be(made.core)
    return made


_MAKERS: dict[str, Callable[[Membership], Any]] = {
    NATIVE: native.create,
    PYTHON_BACKEND: PythonBackend.create,
    PYTHON_PROCESS_GROUP: AffluxProcessGroup,
}


def create_process_group(
    store: Store, rank: int, size: int, timeout: timedelta, name: str, pg_options: Any
) -> dist.ProcessGroup:
    """Make a process group that torch's own lists do not have; see `Membership`. Collective."""
    adapter = _adapter()
    made = _MAKERS[adapter](
        Membership(store, rank, size, timeout, name, pg_options=pg_options, adapter=adapter)
    )
    if isinstance(made, dist.ProcessGroup):
        return made
    group = dist.ProcessGroup(store, rank, size)
    kind = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    for device in dist.Backend.backend_capability["afflux"]:
        group._register_backend(torch.device(device), kind, made)
    return group


def _reconfigurable(membership: Membership, is_default: bool) -> Any:
    if membership.adapter != NATIVE:
        raise RuntimeError(
            "init_process_group(enable_reconfigure=True): torch lets no backend in Python change "
            "its ranks; install a C++ compiler (g++) so that the backend afflux is in C++, or "
            "call afflux.reconfigure, which makes a new default group"
        )
    return create_reconfigurable(membership, is_default)


def _adapter() -> str:
    if _has_native():
        return NATIVE
    return PYTHON_BACKEND if torch_version >= _PYTHON_BACKENDS else PYTHON_PROCESS_GROUP


@functools.cache
def _has_native() -> bool:
    # A group that is asked for in vain reports what is wrong with the value, at every rank.
    wish = os.environ.get("AFFLUX_ADAPTER", "auto").strip()
    if wish == "python":
        return False
    try:
        native.load()
    except native.AdapterUnavailable as error:
        if wish == "native":
            raise
        # One rank of a host says it for all.
        level = logging.WARNING if os.environ.get("LOCAL_RANK", "0") == "0" else logging.INFO
        _log.log(
            level,
            "native adapter unavailable: %s; small collectives will be slower. After mending it, "
            "`python -m afflux.adapters.native` tries again",
            error,
        )
        return False
    return True
