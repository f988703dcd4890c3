"""Bugs that show that the judge can fail: each replaces a name of torch.distributed in the ranks.

They do what a bug of the product would: they spoil a contribution or a result, swallow an error,
keep what they should give back, or do not return.
"""

import mmap
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["BUGS", "plant"]

_TRUE: dict[str, Any] = {}
_KEPT: list[Any] = []
_LATE = 3
"""The bug is in every call of this number and its multiples, as no bug is in every call."""


def plant(bug: str, rank: int) -> None:
    """Take out the bug that is there, and plant another, at rank 1 only; "" plants none."""
    for name, function in _TRUE.items():
        setattr(dist, name, function)
    _TRUE.clear()
    if bug and rank == 1:
        BUGS[bug]()


def _replace(name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    _TRUE[name] = getattr(dist, name)
    setattr(dist, name, made(_TRUE[name]))


def _spoils(change: Callable[[torch.Tensor, int], object]) -> None:
    def made(true: Callable[..., Any]) -> Callable[..., Any]:
        count = 0

        def all_reduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            change(tensor, count)
            return true(tensor, *arguments, **options)

        return all_reduce

    _replace("all_reduce", made)


def _doubled() -> None:
    _spoils(lambda tensor, count: tensor.mul_(2) if count % _LATE == 0 else None)


def _left_out() -> None:
    _spoils(lambda tensor, count: tensor.zero_() if count % _LATE == 0 else None)


def _stale() -> None:
    def made(true: Callable[..., Any]) -> Callable[..., Any]:
        last = torch.empty(0)

        def all_reduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            nonlocal last
            found = true(tensor, *arguments, **options)
            if found is None:
                now = tensor.clone()
                if last.dtype == tensor.dtype:
                    count = min(len(last), len(tensor))
                    tensor[:count] = last[:count]
                last = now
            return found

        return all_reduce

    _replace("all_reduce", made)


def _swallowed() -> None:
    """Let a call that fails return all the same, with what happens to be in the tensor."""

    def made(true: Callable[..., Any]) -> Callable[..., Any]:
        def all_reduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            try:
                return true(tensor, *arguments, **options)
            except RuntimeError:
                return None

        return all_reduce

    _replace("all_reduce", made)


def _hang() -> None:
    def made(true: Callable[..., Any]) -> Callable[..., Any]:
        def shrink_group(*arguments: Any, **options: Any) -> Any:
            found = true(*arguments, **options)
            time.sleep(3600)
            return found

        return shrink_group

    _replace("shrink_group", made)


def _kept(keep: Callable[[], Any]) -> None:
    def made(true: Callable[..., Any]) -> Callable[..., Any]:
        def destroy_process_group(*arguments: Any, **options: Any) -> Any:
            _KEPT.append(keep())
            return true(*arguments, **options)

        return destroy_process_group

    _replace("destroy_process_group", made)


def _segment() -> Any:
    descriptor = os.memfd_create("afflux")
    os.ftruncate(descriptor, 4096)
    kept = mmap.mmap(descriptor, 4096)
    os.close(descriptor)
    return kept


BUGS: dict[str, Callable[[], None]] = {
    "doubled": _doubled,
    "left out": _left_out,
    "stale": _stale,
    "swallowed": _swallowed,
    "hang": _hang,
    "segment": lambda: _kept(_segment),
    "descriptor": lambda: _kept(lambda: os.open("/dev/null", os.O_RDONLY)),
    "process": lambda: _kept(lambda: subprocess.Popen(["sleep", "60"])),
}
"""By name: a contribution that counts twice, one that is missing, the result of an earlier call, an
error that is swallowed, a hang, and what is left behind."""
