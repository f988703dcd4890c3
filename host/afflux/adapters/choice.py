"""Which adapter a group gets."""

import functools
import logging
import os
from typing import Any

from torch.torch_version import __version__ as torch_version

from afflux.adapters import native
from afflux.adapters.process_group import AffluxProcessGroup
from afflux.adapters.python_backend import PythonBackend
from afflux.group.membership import Membership

__all__ = ["create_backend"]

_log = logging.getLogger("afflux")

_PYTHON_BACKENDS = "2.14"
"""The first version of torch that takes a backend in Python."""


def create_backend(options: Any, backend_options: Any = None) -> Any:
    """Make a group, as torch.distributed asks for it with `extended_api=True`.

    Args:
        options: torch's `_DistributedBackendOptions`.
        backend_options: `pg_options` of the caller.
    """
    membership = Membership(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id),
        list(options.global_ranks_in_group),
        backend_options,
    )
    if _has_native():
        return native.create(membership)
    if torch_version >= _PYTHON_BACKENDS:
        return PythonBackend.create(membership)
    return AffluxProcessGroup(membership)


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
        _log.warning("small collectives take longer, as %s", error)
        return False
    return True
