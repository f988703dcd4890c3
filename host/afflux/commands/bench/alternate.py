"""Times several contenders in turn, again and again, so that disturbances affect all alike.

One *run* of a contender is timed as nccl-tests does: warm-up, a barrier, then calls back to back
whose time is divided by their number. Where calls in place change what the next one measures
(`Inputs.calls_in_place`), a run is cut into batches, with the data restored between them, untimed.
"""

import statistics
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from afflux.commands.bench.contenders import Contender
from afflux.commands.bench.cpu_time import CpuTimer

__all__ = ["Entry", "Plan", "Timing", "alternate"]


@dataclass(frozen=True)
class Plan:
    """How often contenders run.

    Attributes:
        iterations: Timed calls in a run.
        warmup: Untimed calls before them.
        repeats: Runs of each contender.
        average: Over ranks: 0 rank 0's time, 1 mean, 2 least, 3 greatest.
    """

    iterations: int
    warmup: int
    repeats: int
    average: int = 1


@dataclass
class Entry:
    """A contender with its tensor, and what its calls do.

    Attributes:
        key: Its name in the result.
        contender: See `contenders`.
        tensor: What it works on, of shape (count,).
        batch: Most calls between restorations; 0: any number.
        copies: Out of place: each call first copies the source, in the time.
        same_bits: All runs must leave the same bits at all ranks.
    """

    key: str
    contender: Contender
    tensor: torch.Tensor
    batch: int = 0
    copies: bool = False
    same_bits: bool = False


@dataclass
class Timing:
    """The measured figures of one call.

    Attributes:
        seconds: Median over the runs of the time over ranks.
        runs_s: The same time for each run.
        cpu_s: Processor time by rank, mean over the runs.
        same_bits: Whether every run left the same bits at all ranks; None if not compared.
    """

    seconds: float
    runs_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    same_bits: bool | None = None


def alternate(
    entries: Sequence[Entry], source: torch.Tensor, op: str, plan: Plan, control: Any
) -> dict[str, Timing]:
    """Time all entries in turn. Collective.

    Args:
        entries: The same at all ranks.
        source: What this rank contributes, of shape (count,).
        op: "sum", "avg", "max" or "min".
        plan: How often they run.
        control: A group of all ranks, not one that is timed.
    """
    wall: dict[str, list[float]] = {entry.key: [] for entry in entries}
    cpu: dict[str, list[list[float]]] = {entry.key: [] for entry in entries}
    marks: dict[str, set[int]] = {entry.key: set() for entry in entries}
    for repeat in range(plan.repeats):
        # Forwards and backwards, so that none always follows the same one.
        for entry in entries if repeat % 2 == 0 else reversed(entries):
            seconds, processor = _run(entry, source, op, plan, control)
            found = _gather([seconds, processor], control)
            wall[entry.key].append(_over_ranks([each[0] for each in found], plan.average))
            cpu[entry.key].append([each[1] for each in found])
            if entry.same_bits:
                mark = zlib.crc32(entry.tensor.view(torch.uint8).numpy().data)
                marks[entry.key].update(int(each[0]) for each in _gather([mark], control))
    return {
        entry.key: Timing(
            statistics.median(wall[entry.key]),
            wall[entry.key],
            [statistics.fmean(column) for column in zip(*cpu[entry.key], strict=True)],
            len(marks[entry.key]) == 1 if entry.same_bits else None,
        )
        for entry in entries
    }


def _run(
    entry: Entry, source: torch.Tensor, op: str, plan: Plan, control: Any
) -> tuple[float, float]:
    """Return wall and processor seconds of a call, at this rank."""
    _batches(entry, source, op, plan.warmup, control)
    return _batches(entry, source, op, plan.iterations, control)


def _batches(
    entry: Entry, source: torch.Tensor, op: str, calls: int, control: Any
) -> tuple[float, float]:
    wall_s = cpu_s = 0.0
    tensor, call, copies = entry.tensor, entry.contender.call, entry.copies
    processor = CpuTimer()
    left = calls
    while left:
        now = min(left, entry.batch) if entry.batch else left
        left -= now
        tensor.copy_(source)
        processor.prepare()
        dist.barrier(control)
        processor.start()
        started = time.perf_counter()
        if copies:
            for _ in range(now):
                tensor.copy_(source)
                call(tensor, op)
        else:
            for _ in range(now):
                call(tensor, op)
        wall_s += time.perf_counter() - started
        cpu_s += processor.stop()
    return wall_s / max(calls, 1), cpu_s / max(calls, 1)


def _gather(values: list[float], control: Any) -> list[list[float]]:
    """Return every rank's values, by rank."""
    mine = torch.tensor(values, dtype=torch.float64)
    found = [torch.empty_like(mine) for _ in range(dist.get_world_size(control))]
    dist.all_gather(found, mine, group=control)
    return [each.tolist() for each in found]


def _over_ranks(values: list[float], average: int) -> float:
    return (values[0], statistics.fmean(values), min(values), max(values))[average]
