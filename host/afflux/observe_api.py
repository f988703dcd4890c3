"""Scripts observe a group by these: hooks, flight record, a barrier that names ranks."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from afflux.group_statistics import group_of
from afflux.observe.dump_file import write_dump
from afflux.observe.flight_recorder import process_recorder
from afflux.observe.hooks import AbortHook, CallHook, HookHandle

__all__ = ["dump_flight_record", "monitored_barrier", "register_hook"]


def register_hook(
    group: Any = None,
    *,
    before: CallHook | None = None,
    after: CallHook | None = None,
    abort: AbortHook | None = None,
) -> HookHandle:
    """Have functions called before and after each call in a group, and when the group fails.

        handle = afflux.register_hook(after=lambda call: print(call.text, call.way))
        …
        handle.remove()

    `before` and `after` get an `afflux.observe.observation.Observation`: `before` in the thread of
    the caller, `after` in the one that ended the call. `abort` gets the error. An error in a hook
    is logged, and changes nothing else; calls that a hook makes in the group have no hooks.

    Args:
        group: A process group of backend "afflux"; None for the default group.
        before: Called when a collective, a send or a receive is asked for.
        after: Called when it is over, with its `error` if it failed.
        abort: Called once, when the group ends with an error.

    Raises:
        TypeError: The group is another backend's, a hook cannot be called, or there is none.
        ValueError: The group has been destroyed.
    """
    return group_of(group).observers.hooks.register(before, after, abort)


def dump_flight_record(path: str | os.PathLike[str], group: Any = None) -> Path:
    """Write the flight record of this process, of all its groups, for torch's `fr_trace`.

        afflux.dump_flight_record("/var/tmp/record/")     # at every rank
        $ python -m torch.distributed.flight_recorder.fr_trace /var/tmp/record

    Args:
        path: A file, or an existing folder, which gets `rank_<global rank>`.
        group: A process group of backend "afflux" whose global rank is meant; None for the default
            group.

    Returns:
        The file.

    Raises:
        RuntimeError: Nothing has been recorded, as no variable asks for it.
        OSError: The file cannot be written.
    """
    recorder = process_recorder()
    if recorder is None:
        raise RuntimeError(
            "there is no flight record: set TORCH_FR_BUFFER_SIZE to the number of calls to keep"
        )
    target = Path(path)
    if target.is_dir():
        target = target / f"rank_{group_of(group).observers.global_rank}"
    write_dump(recorder, target)
    return target


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Return when all ranks have called this; at rank 0, name those that have not come in time.

    As `torch.distributed.monitored_barrier`, which before torch 2.14 takes groups of Gloo only.

    Args:
        group: A process group of backend "afflux"; None for the default group.
        timeout: How long rank 0 waits; None for the group's timeout.
        wait_all_ranks: Whether rank 0 names all ranks that have not come, not the first only.

    Raises:
        RanksMissing: At rank 0; `ranks` are those of the group.
        AffluxError: At another rank: rank 0 has raised an error, or has not come.
        TypeError: The group is another backend's.
        ValueError: The group has been destroyed.
    """
    group_of(group).monitored_barrier(timeout, wait_all_ranks)
