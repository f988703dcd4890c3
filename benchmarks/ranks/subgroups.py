"""The cost of many groups: making sixteen, their first use, their end; descriptors and threads."""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from afflux.commands.bench.registry import Row
from benchmarks.ranks.family import Family, FamilyCase
from benchmarks.ranks.session import BACKENDS, Session, new_group
from benchmarks.report.sides import reason_of

__all__ = ["SUBGROUPS"]

_GROUPS = 16
_REPEATS = 5
_PHASES = ("init", "first_use", "destroy")


def _in_use() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def _timed(session: Session, work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the slowest rank's seconds: until then the others wait, sooner or later."""
    dist.barrier(session.control)
    start = time.perf_counter()
    result = work()
    return session.agree(time.perf_counter() - start), result


def _once(session: Session, backend: str, groups: int) -> Row:
    """Make groups, use and destroy them; return seconds, and what one of them holds."""
    before = _in_use()
    init_s, made = _timed(
        session, lambda: [new_group(backend, range(session.ranks)) for _ in range(groups)]
    )
    tensors = [torch.full((64,), float(session.rank + 1)) for _ in made]

    def use() -> None:
        for tensor, group in zip(tensors, made, strict=True):
            dist.all_reduce(tensor, group=group)

    first_use_s, _ = _timed(session, use)
    total = session.ranks * (session.ranks + 1) / 2
    wrong = sum(int((tensor != total).sum()) for tensor in tensors)
    held = _in_use()

    def destroy() -> None:
        for group in made:
            dist.destroy_process_group(group)

    destroy_s, _ = _timed(session, destroy)
    return {
        "init": init_s,
        "first_use": first_use_s,
        "destroy": destroy_s,
        "wrong": int(session.agree(wrong, dist.ReduceOp.SUM)),
        "descriptors": (held[0] - before[0]) / groups,
        "threads": (held[1] - before[1]) / groups,
    }


def _tried(session: Session, backend: str, groups: int) -> tuple[Row | None, str]:
    found, reason = None, ""
    try:
        found = _once(session, backend, groups)
    except Exception as error:
        # Whatever it is: the other backend is measured all the same.
        reason = reason_of(error)
    reason = session.first_reason(reason)
    return (None, reason) if reason else (found, "")


def _measure(session: Session) -> Row:
    groups = 2 if session.quick else _GROUPS
    repeats = 1 if session.quick else _REPEATS
    row: Row = {"what": "subgroups", "ranks": session.ranks, "groups": groups, "failed": ""}
    works: list[str] = []
    for backend in BACKENDS:
        # The first group of a process loads what the others find.
        _, reason = _tried(session, backend, 1)
        if reason:
            row["failed"] += f"{'; ' if row['failed'] else ''}{backend}: {reason}"
        else:
            works.append(backend)
    found: dict[str, list[Row]] = {backend: [] for backend in works}
    for repeat in range(repeats):
        for backend in works if repeat % 2 == 0 else reversed(works):
            found[backend].append(_once(session, backend, groups))
    for backend, rows in found.items():
        for phase in _PHASES:
            row[f"{backend}_{phase}_s"] = statistics.median(each[phase] for each in rows)
        # The time until there are groups is compared.
        row[f"{backend}_s"] = row[f"{backend}_init_s"]
        row[f"{backend}_runs_s"] = [each["init"] for each in rows]
        row["wrong" if backend == "afflux" else f"{backend}_wrong"] = sum(
            each["wrong"] for each in rows
        )
        row[f"{backend}_descriptors"] = statistics.median(each["descriptors"] for each in rows)
        row[f"{backend}_threads"] = statistics.median(each["threads"] for each in rows)
    if len(works) == len(BACKENDS):
        pairs = zip(row["gloo_runs_s"], row["afflux_runs_s"], strict=True)
        row["ratio"] = statistics.median(other / own for other, own in pairs)
    return row


SUBGROUPS = Family(
    "subgroups",
    (FamilyCase("subgroups", f"{_GROUPS} groups", _measure, {2: 1.0, 4: 1.0}),),
)
