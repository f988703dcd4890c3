"""Functions of torch that know the backends by their names, for groups of Afflux too.

They ask whether it is Gloo, or NCCL, and refuse, warn or raise otherwise; most do so in 2.13 alone,
as 2.14 asks the backend. They are replaced by ones that first ask whether the group is one of
Afflux; for all other groups these call torch's own. docs/torch_versions.md lists all places in
torch that ask so.
"""

import functools
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.torch_version import __version__ as torch_version

from afflux.statistics import find_group

__all__ = ["serve_by_name"]

_ASKS_THE_BACKEND = "2.14"


def serve_by_name() -> None:
    """Replace the functions that this version of torch needs, once."""
    if hasattr(DistributedDataParallel._get_ddp_logging_data, "__wrapped__"):
        return
    _replace("_get_ddp_logging_data", _logging_data, DistributedDataParallel)
    if torch_version < _ASKS_THE_BACKEND:
        _replace("monitored_barrier", _monitored_barrier, dist, distributed_c10d)
        _replace("_set_pg_timeout", _set_pg_timeout, distributed_c10d)
        _replace("_set_sequence_number_for_group", _begin_sequence, dist.ProcessGroup)
        _replace("_get_sequence_number_for_group", _sequence_number, dist.ProcessGroup)


def _replace(name: str, ours: Any, *places: Any) -> None:
    theirs = getattr(places[-1], name)

    @functools.wraps(theirs)
    def chosen(*arguments: Any, **named: Any) -> Any:
        return ours(theirs, *arguments, **named)

    for place in places:
        setattr(place, name, chosen)


def _monitored_barrier(
    theirs: Any,
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    core = find_group(group)
    if core is None:
        theirs(group, timeout, wait_all_ranks)
    else:
        limit = timedelta(seconds=timeout) if isinstance(timeout, float) else timeout
        core.monitored_barrier(limit, wait_all_ranks)


def _set_pg_timeout(
    theirs: Any, timeout: timedelta, group: dist.ProcessGroup | None = None
) -> None:
    core = find_group(group)
    if core is not None:
        core.set_timeout(timeout)
    devices = getattr(group or distributed_c10d._get_default_group(), "_device_types", [])
    # torch warns where no device has a backend that it knows.
    if core is None or len(devices) > 1:
        theirs(timeout, group)


def _begin_sequence(theirs: Any, group: dist.ProcessGroup) -> None:
    # A group of Afflux counts from its beginning.
    if find_group(group) is None:
        theirs(group)


def _sequence_number(theirs: Any, group: dist.ProcessGroup) -> int:
    core = find_group(group)
    number: int = theirs(group) if core is None else core.sequence
    return number


def _logging_data(theirs: Any, module: DistributedDataParallel) -> dict[str, Any]:
    # C++ has a name for each kind of backend, and "custom" for all kinds that it does not know.
    ours = {"backend_name": "afflux"} if find_group(module.process_group) else {}
    return {**theirs(module), **ours}
