"""Which adapter a group gets."""

import functools
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.torch_version import __version__ as torch_version

from afflux.adapters import native
from afflux.adapters.process_group import AffluxProcessGroup
from afflux.adapters.python_backend import PythonBackend
from afflux.group.core import Group
from afflux.group.settings.membership import (
    NATIVE,
    PYTHON_BACKEND,
    PYTHON_PROCESS_GROUP,
    Membership,
)

__all__ = ["create_backend"]

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
        backend_options = _default_group.options
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
    made = _MAKERS[adapter](membership)
    if is_default:
        _default_group.core = weakref.ref(made.core)
    return made


class _DefaultGroup:
    """torch's default group of this process, if it is ours."""

    def __init__(self) -> None:
        self.core: Callable[[], Group | None] = lambda: None

    @property
    def options(self) -> Any:
        core = self.core()
        # An earlier default group says nothing about this one's.
        return None if core is None or core.closed else core.pg_options


_default_group = _DefaultGroup()


_MAKERS: dict[str, Callable[[Membership], Any]] = {
    NATIVE: native.create,
    PYTHON_BACKEND: PythonBackend.create,
    PYTHON_PROCESS_GROUP: AffluxProcessGroup,
}


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
