"""The error for a tensor on a device for which a group with Afflux has no backend.

torch looks for the backend by the tensor's device, finds none, and says so without a name. The
backend is registered for the CPU alone all the same: torch takes all devices that one is registered
for as devices that it can carry tensors on, state dicts and checkpoints among others.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_group

from afflux.group.call.errors import CallRefused
from afflux.group.call.tensors import other_device
from afflux.group_statistics import find_group

__all__ = ["refuse"]


def refuse(operation: str, given: Iterable[Any]) -> None:
    """Raise the error, if the group has Afflux for the CPU.

    Args:
        operation: Name of what was called.
        given: Its arguments: tensors or lists of them, and the process group unless it is the
            default one.

    Raises:
        CallRefused: Always, unless the group has nothing of Afflux, or has a backend for all of the
            tensors.
    """
    given = list(given)
    group = next((each for each in given if isinstance(each, dist.ProcessGroup)), None)
    core = find_group(group)
    if core is None:
        return
    served = {each.type for each in (group or _get_default_group())._device_types}
    for tensor in _tensors(given):
        device = tensor.device
        if device.type not in served:
            theirs = dist.Backend.default_device_backend_map.get(device.type, "BACKEND")
            raise CallRefused(
                f"{other_device(f'{operation} at rank {core.rank}', device)}, or make the group by "
                f'init_process_group("cpu:afflux,{device.type}:{theirs}"), in which {theirs} takes '
                f"tensors on {device.type}"
            ) from None


def _tensors(given: Iterable[Any]) -> Iterable[torch.Tensor]:
    for each in given:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)
