"""Gloo, as one process group for each group of ours: for calls that the engine does not take.

The groups of a process share one Gloo device. Each device has a listening socket, a poll descriptor
and a thread that checks a hundred times a second whether it must end, in an idle process too.

All pairs of ranks connect when the group is made. Gloo can also connect a pair when it is first
used, but a group made so stops its device when it ends, and with it all other groups of the device.
"""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.torch_version import __version__ as torch_version

from afflux.group.settings.membership import Membership
from afflux.group.store.bounded import Asker, StoreSilent
from afflux.group.store.exchange import RendezvousError
from afflux_drivers.errors import timed_out

__all__ = ["make_gloo"]

_THREADS_PER_DEVICE = 2
"""As torch has it for its own groups."""

_SEQUENCE_FROM_0 = "2.14"
"""The version from which Gloo counts its operations unasked, and warns of callers."""

_GRACE_S = 2.0
"""Gloo's own errors say more, and come when the timeout has passed."""

_LOOK_S = 0.01

_T = TypeVar("_T")

# By process, as a forked one has none of the threads, and by what the environment chose.
_devices: dict[tuple[int, str], list[Any]] = {}


def make_gloo(store: Store, membership: Membership) -> dist.ProcessGroupGloo:
    """Make a Gloo group as torch makes its own, on the device of this process. Collective.

    Args:
        store: The group's; keys of Gloo are used by nothing else there.
        membership: Of this rank.

    Raises:
        RuntimeError: Another rank did not come, or cannot be reached; or this process may not open
            as many files as the connections take.
        RendezvousError: The store does not answer.
    """
    # torch's stub has other names than torch.
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = membership.timeout
    options._devices = _own_devices()
    options._threads = _THREADS_PER_DEVICE * len(options._devices)
    options.global_ranks_in_group = list(membership.global_ranks)
    options.group_name = membership.name
    rank, size = membership.rank, membership.size
    _await_files(rank, size, membership.timeout.total_seconds() / 2)
    gloo = _in_time(lambda: dist.ProcessGroupGloo(store, rank, size, options), store, membership)
    if torch_version < _SEQUENCE_FROM_0:
        gloo._set_sequence_number_for_group()
    return gloo


def _await_files(rank: int, size: int, limit_s: float) -> None:
    """Wait until there are as many files left as connections.

    Where Gloo's thread cannot accept one, it ends the process ("accept: Too many open files").

    Raises:
        RuntimeError: There are not in time.
    """
    needed = size - 1
    deadline = time.monotonic() + limit_s
    while (left := _files_left(needed)) < needed:
        if time.monotonic() >= deadline:
            raise RuntimeError(
                f"rank {rank} of {size} may open {left} more files, and Gloo needs {needed} to "
                "connect it with the others: raise `ulimit -n`"
            )
        time.sleep(_LOOK_S)


def _files_left(most: int) -> int:
    """Return how many files this process may open, at most so many."""
    opened: list[int] = []
    with contextlib.suppress(OSError):
        while len(opened) < most:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    for each in opened:
        os.close(each)
    return len(opened)


def _in_time(connect: Callable[[], _T], store: Store, membership: Membership) -> _T:
    """Return what `connect` returns, unless the store has fallen silent under it.

    Gloo asks the store for the other ranks' addresses, and limits each of its waits itself.
    """
    limit_s = membership.timeout.total_seconds()
    try:
        return Asker(idle_s=0.0).ask(connect, limit_s + _GRACE_S, store)
    except StoreSilent as silence:
        raise RendezvousError(
            f"{timed_out(limit_s)}: rank {membership.rank} of {membership.size} waited for Gloo to "
            f"connect it with the others: {silence}"
        ) from None


def _own_devices() -> list[Any]:
    """Return this process's devices, on the interfaces that torch would choose."""
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME", "")
    key = (os.getpid(), interfaces)
    devices = _devices.get(key)
    if devices is None:
        create = dist.ProcessGroupGloo
        if len(interfaces) > 1:
            devices = [
                create.create_device(interface=each, lazy_init=False)
                for each in interfaces.split(",")
            ]
        else:
            # On the loopback interface if the host's name has no address here.
            devices = [create.create_default_device(lazy_init=False)]
        # Of two threads that come here at once, both take the first one's.
        devices = _devices.setdefault(key, devices)
    return devices
