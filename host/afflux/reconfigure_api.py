"""Groups whose ranks change: by handles alone, whatever has become of the store they began with.

handle = afflux.reconfigure_handle()          # give it to the others, by whichever way
afflux.reconfigure(uuid=1, handles=handles)   # all of them call, in the order of their ranks
dist.all_reduce(tensor)
"""

import os
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from afflux.adapters.choice import create_process_group
from afflux.adapters.default_group import default_group
from afflux.group.backend_lookup import cpu_backend
from afflux.group.reconfiguring import Reconfiguring
from afflux.group.settings.options import settings_for
from afflux.group.store.keys import master_of
from afflux.group_statistics import find_group, group_of

__all__ = ["process_group", "reconfigure", "reconfigure_handle", "supports_reconfigure"]

_TORCH_DEFAULT = timedelta(minutes=30)


class _Own:
    """The default group of this process, whichever it is at a time."""

    def __init__(self) -> None:
        self.ranks: Reconfiguring | None = None
        # Timeout and options of a group that has been destroyed for one that could not be formed.
        self.last: tuple[timedelta, Any] = _TORCH_DEFAULT, None


_own = _Own()


def supports_reconfigure(group: dist.ProcessGroup | None = None) -> bool:
    """Return whether `reconfigure` can change the ranks of a group.

    Args:
        group: For None the default group, which need not be there yet.
    """
    if group is None and not dist.is_initialized():
        return True
    if _changes_in_place(group):
        return True
    found = group in (None, dist.group.WORLD) and find_group(group) is not None
    return found and _has_afflux_alone()


def reconfigure_handle(group: dist.ProcessGroup | None = None) -> str:
    """Return the handle of this rank, a text of one line, some 150 characters long.

    It says where this process is, and which group of it is meant: it stays the same for as long as
    the process lives, whatever ranks the group has. Others need nothing else to reach it.

    Args:
        group: For None the default group, which need not be there yet.

    Raises:
        ValueError: `group` cannot be reconfigured.
        OSError: AFFLUX_INTERFACE names an interface that is not there.
    """
    if _changes_in_place(group):
        found: Any = dist.distributed_c10d._get_default_group() if group is None else group
        return str(found.get_reconfigure_handle())
    _check(group)
    return str(_ranks().handle)


def reconfigure(
    uuid: int,
    handles: Collection[str],
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | None = None,
) -> dist.ProcessGroup:
    """Make a group of the ranks with these handles, in the place of the one that was. Collective.

    All ranks of the new group call, with the same arguments; nobody else does. Calls that are in
    flight end with an error. Ranks that have never met need no store in common: the first handle's
    process serves one. Sums are, to the bit, those of any group of the same ranks.

    A group that torch (from 2.14 on) has made with `enable_reconfigure=True` stays the same object.
    Otherwise the default group, if there is one, is destroyed with all others, and a new one made;
    its operations have timeout and options of the last one, or torch's 30 minutes and the
    environment's, also if earlier calls could not form one in between.

    Args:
        uuid: Numbers the call. No rank has used it before.
        handles: Of the new ranks. Their order in a list is that of the ranks; ranks of a set have
            an order that is the same everywhere.
        group: For None the default group, which need not be there yet.
        timeout: How long it may take; for None as long as an operation.

    Returns:
        The group.

    Raises:
        ValueError: `group` cannot be reconfigured.
        RendezvousError: The arguments are wrong in themselves: the number is used, handles are
            none, more than 64, equal, not Afflux's, or this rank's is missing. The last group is as
            before. Ranks that wait for this one get an error that tells it, but for a used number.
        RendezvousError: Ranks were told other things, which shows in some two seconds; have ended,
            in three; or do not call until the timeout. The error names them. There is no group, but
            another call, with another number, may make one.
        AffluxError: The group could not be formed, as by `init_process_group`.
    """
    if _changes_in_place(group):
        dist._reconfigure(uuid, handles, group, timeout).wait()  # type: ignore[attr-defined]
        return dist.distributed_c10d._get_default_group() if group is None else group
    _check(group)
    core = find_group(None) if dist.is_initialized() else None
    if core is not None:
        _own.last = timedelta(seconds=core.timeout_s), core.pg_options
    operations, options = _own.last
    limit_s = (operations if timeout is None else timeout).total_seconds()

    def end() -> None:
        if core is not None:
            core.abort()

    with _ranks().met(uuid, handles, limit_s, end) as place:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group(
            "afflux",
            store=place.store,
            rank=place.rank,
            world_size=place.size,
            timeout=place.left,
            pg_options=options,
        )
    group_of(None).set_timeout(operations)
    _own.last = _TORCH_DEFAULT, None
    return dist.distributed_c10d._get_default_group()


def process_group(
    store: Store,
    rank: int,
    world_size: int,
    timeout: timedelta = _TORCH_DEFAULT,
    name: str = "apart",
    pg_options: Any = None,
) -> dist.ProcessGroup:
    """Make a process group apart from torch's default group, which need not be there. Collective.

    It is for programs that hold and replace groups themselves, such as torchft
    (`examples/torchft_replicas.py`): they call its methods, `allreduce` among others. `abort` ends
    it.

    Args:
        store: Where the ranks meet. No other group has the same keys.
        rank: Own rank.
        world_size: Ranks, 1 to 64.
        timeout: Of each operation, and for the ranks to come.
        name: For messages.
        pg_options: An `afflux.Options`; for None those of the environment.

    Raises:
        AffluxError: The group could not be formed; at every rank.
    """
    return create_process_group(store, rank, world_size, timeout, name, pg_options)


def _changes_in_place(group: dist.ProcessGroup | None) -> bool:
    if group is None and not dist.is_initialized():
        return False
    # torch before 2.14 has no such attribute.
    return bool(getattr(cpu_backend(group), "supports_reconfigure", False))


def _ranks() -> Reconfiguring:
    if _own.ranks is None:
        interfaces = settings_for(default_group.options).interface
        there = dist.is_initialized()
        towards = master_of(dist.distributed_c10d._get_default_store()) if there else None
        _own.ranks = Reconfiguring(interfaces, towards or os.environ.get("MASTER_ADDR"))
    return _own.ranks


def _check(group: dist.ProcessGroup | None) -> None:
    """Refuse groups that cannot be replaced.

    Raises:
        ValueError: It is one.
    """
    if not dist.is_initialized():
        return
    if group not in (None, dist.group.WORLD):
        raise ValueError(
            "afflux.reconfigure: torch lets only the default group be replaced; make others anew, "
            "or, from torch 2.14 on, with enable_reconfigure=True"
        )
    if find_group(None) is None or not _has_afflux_alone():
        raise ValueError(
            "afflux.reconfigure: the default group is not one of the backend afflux alone, but of "
            f"{dist.get_backend_config()}"
        )


def _has_afflux_alone() -> bool:
    backends = str(dist.get_backend_config()).split(",")
    return all(each.partition(":")[2] == "afflux" for each in backends)


# A forked process is another rank.
os.register_at_fork(after_in_child=_own.__init__)  # type: ignore[misc]
