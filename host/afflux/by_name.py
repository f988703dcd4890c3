"""Functions of torch that know the backends by their names, for groups of Afflux too.

They ask whether it is Gloo, or NCCL, and refuse, warn or raise otherwise; some do so in 2.13 alone,
as 2.14 asks the backend. They are replaced by ones that first ask whether the group is one of
Afflux. For all other groups these call torch's own. docs/torch_versions.md lists all such places,
with what happens there.

The import of this module replaces those that torch has imported itself: the backend's registration
imports it, and may do so while this module imports torch.
"""

import functools
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import c10d_logger, distributed_c10d
from torch.distributed import utils as distributed_utils
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as data_parallel
from torch.torch_version import __version__ as torch_version

__all__ = ["serve_modules_by_name"]

_ASKS_THE_BACKEND = "2.14"

_NO_BACKEND = "No backend type associated with device type"
"""So torch begins, in C++, when a group of `cpu:afflux` gets a tensor on a GPU."""


def find_group(group: Any) -> Any:
    """Return the group of Afflux behind a process group; None if it is not one."""
    # Not at the top: the first import of torch may be that module's own.
    from afflux.group_statistics import find_group as find

    return find(group)


def name_device(error: RuntimeError, operation: str, given: list[Any]) -> None:
    """Raise Afflux's own error, if torch's is that a group has no backend for a tensor's device."""
    if _NO_BACKEND in str(error):
        from afflux.other_device import refuse

        refuse(operation, given)


def _serve_by_name() -> None:
    _replace("_get_ddp_logging_data", _logging_data, DistributedDataParallel)
    _replace("_get_msg_dict", _of_failed_call, c10d_logger)
    _replace("_verify_param_shape_across_processes", _verify, distributed_utils, data_parallel)
    if torch_version < _ASKS_THE_BACKEND:
        _replace("monitored_barrier", _monitored_barrier, dist, distributed_c10d)
        _replace("_set_pg_timeout", _set_pg_timeout, distributed_c10d)
        _replace("_set_sequence_number_for_group", _begin_sequence, dist.ProcessGroup)
        _replace("_get_sequence_number_for_group", _sequence_number, dist.ProcessGroup)


@functools.cache
def serve_modules_by_name() -> None:
    """Replace functions in modules that torch does not import by itself, once."""
    from torch.distributed._shard.sharded_tensor.api import _SHARDED_OPS, ShardedTensor
    from torch.distributed.nn import functional

    _replace("to", _sharded_to, ShardedTensor)
    asked: Any = torch.Tensor.device
    _SHARDED_OPS[asked.__get__] = functools.partial(_sharded_device, _SHARDED_OPS[asked.__get__])
    gathered: Any = functional._AllGatherBase
    gathered.backward = staticmethod(functools.partial(_spread_gradient, gathered.backward))


def _replace(name: str, ours: Any, *places: Any) -> None:
    theirs = getattr(places[-1], name)

    @functools.wraps(theirs)
    def chosen(*arguments: Any, **named: Any) -> Any:
        return ours(theirs, *arguments, **named)

    for place in places:
        setattr(place, name, chosen)


def _of_failed_call(theirs: Any, name: str, *arguments: Any, **named: Any) -> dict[str, Any]:
    # torch's collectives ask this about themselves, to log an exception that they are to raise.
    error = sys.exception()
    if isinstance(error, RuntimeError):
        name_device(error, name, [*arguments, *named.values()])
    told: dict[str, Any] = theirs(name, *arguments, **named)
    return told


def _verify(theirs: Any, process_group: Any, tensors: Any, *arguments: Any) -> Any:
    # The first collective of DistributedDataParallel, which is C++.
    try:
        return theirs(process_group, tensors, *arguments)
    except RuntimeError as error:
        name_device(error, "DistributedDataParallel", [process_group, tensors])
        raise


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
    told: dict[str, Any] = theirs(module)
    # C++ has a name for each kind of backend, and this one for all kinds that it does not know.
    if told.get("backend_name") == "custom" and find_group(module.process_group) is not None:
        told["backend_name"] = "afflux"
    return told


def _spread_gradient(theirs: Any, context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    group = context.group
    if find_group(group) is None:
        returned: tuple[Any, ...] = theirs(context, gradient)
        return returned
    rows, ranks = len(gradient), dist.get_world_size(group)
    if rows % ranks:
        raise ValueError(f"_all_gather_base: {rows} rows of gradients at {ranks} ranks")
    own = gradient.new_empty((rows // ranks, *gradient.shape[1:]))
    dist.reduce_scatter_tensor(own, gradient.contiguous(), group=group)
    return None, own, None


def _has_cpu_alone(tensor: Any) -> bool:
    """Return whether a ShardedTensor has no shard here, and only the CPU can have any."""
    group = tensor._process_group
    return (
        not tensor._local_shards
        and find_group(group) is not None
        and group._device_types == [torch.device("cpu")]
    )


def _sharded_device(
    theirs: Any, types: Any, args: Any = (), kwargs: Any = None, pg: Any = None
) -> torch.device:
    if _has_cpu_alone(args[0]):
        return torch.device("cpu")
    device: torch.device = theirs(types, args, kwargs, pg)
    return device


class _OnCpu:
    """Stands for a process group where torch wants to know no more than the device."""

    def _get_backend_name(self) -> str:
        return dist.Backend.GLOO


def _sharded_to(theirs: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:
    if not _has_cpu_alone(tensor):
        return theirs(tensor, *arguments, **named)
    group = tensor._process_group
    named.setdefault("process_group", group)
    tensor._process_group = _OnCpu()
    try:
        return theirs(tensor, *arguments, **named)
    finally:
        tensor._process_group = group


_serve_by_name()
