"""Groups for messages alone: like another one, and when one ends."""

import weakref
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from afflux.group.backend_lookup import cpu_backend
from afflux.group.exit_hooks import before_end

__all__ = ["before_end_of", "check_group", "group_like", "timeout_of"]


def group_like(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Make a group of the same ranks, backend and timeout. Collective."""
    made = dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=timeout_of(group),
        backend=dist.get_backend_config(group),
        use_local_synchronization=True,
    )
    assert isinstance(made, dist.ProcessGroup)
    return made


def check_group(group: dist.ProcessGroup, model_group: dist.ProcessGroup) -> None:
    """Check that a group can be used for a model beside the model's own.

    Raises:
        ValueError: It is that one, or has other ranks.
    """
    if group is model_group:
        raise ValueError("the group is the model's own: the messages need one for themselves")
    ranks, model_ranks = map(dist.get_process_group_ranks, (group, model_group))
    if ranks != model_ranks:
        raise ValueError(
            f"the group must have the ranks of the model's group, {model_ranks}: it has {ranks}"
        )


def timeout_of(group: dist.ProcessGroup | None) -> timedelta | None:
    """Return the timeout of a group, for None the default one; None if it does not say."""
    backend = cpu_backend(group)
    core = getattr(backend, "core", None)
    if core is not None:
        return timedelta(seconds=core.timeout_s)
    found = getattr(getattr(backend, "options", None), "_timeout", None)
    return found if isinstance(found, timedelta) else None


def before_end_of(group: dist.ProcessGroup, call: Callable[[], None]) -> None:
    """Have a bound method called when an Afflux group is about to end; it is not kept alive."""
    core = getattr(cpu_backend(group), "core", None)
    if core is None:
        return
    reference = weakref.WeakMethod(call)

    def if_it_lives() -> None:
        found = reference()
        if found is not None:
            found()

    before_end(core, if_it_lives)
