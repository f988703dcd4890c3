"""Times several contenders in turn, again and again, so that disturbances affect all alike.

One *run* of a contender is timed as nccl-tests does: warm-up, a barrier, then calls back to back
whose time is divided by their number. Where calls in place change what the next one measures
(`Inputs.calls_in_place`), a run is cut into batches, with the data restored between them, untimed.
"""

import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

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


def _nothing() -> None:
    return None


@dataclass
class Entry:
    """The timed calls of one contender.

    Attributes:
        key: Its name in the result.
        call: One call.
        restore: Makes the data what they were before the first call; it is not timed.
        batch: Most calls between restorations; 0: any number.
        same_bits: A result whose bits must be the same at all ranks after each run; None: not
            compared.
        iterations: Timed calls in a run; 0: as many as the plan says.
    """

    key: str
    call: Callable[[], object]
    restore: Callable[[], object] = _nothing
    batch: int = 0
    same_bits: torch.Tensor | None = None
    iterations: int = 0


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


def alternate(entries: Sequence[Entry], plan: Plan, control: Any) -> dict[str, Timing]:
    """Time all entries in turn. Collective.

    Args:
        entries: The same at all ranks.
        plan: How often they run.
        control: A group of all ranks, not one that is timed.
    """
    wall: dict[str, list[float]] = {entry.key: [] for entry in entries}
    cpu: dict[str, list[list[float]]] = {entry.key: [] for entry in entries}
    marks: dict[str, set[int]] = {entry.key: set() for entry in entries}
    for repeat in range(plan.repeats):
        # Forwards and backwards, so that none always follows the same one.
        for entry in entries if repeat % 2 == 0 else reversed(entries):
            seconds, processor = _run(entry, plan, control)
            found = _gather([seconds, processor], control)
            wall[entry.key].append(_over_ranks([each[0] for each in found], plan.average))
            cpu[entry.key].append([each[1] for each in found])
            if entry.same_bits is not None:
                mark = zlib.crc32(entry.same_bits.view(torch.uint8).numpy().data)
                marks[entry.key].update(int(each[0]) for each in _gather([mark], control))
    return {
        entry.key: Timing(
            statistics.median(wall[entry.key]),
            wall[entry.key],
            [statistics.fmean(column) for column in zip(*cpu[entry.key], strict=True)],
            None if entry.same_bits is None else len(marks[entry.key]) == 1,
        )
        for entry in entries
    }


def _run(entry: Entry, plan: Plan, control: Any) -> tuple[float, float]:
    """Return wall and processor seconds of a call, at this rank."""
    _batches(entry, plan.warmup, control)
    return _batches(entry, entry.iterations or plan.iterations, control)


def _batches(entry: Entry, calls: int, control: Any) -> tuple[float, float]:
    wall_s = cpu_s = 0.0
    call = entry.call
    processor = CpuTimer()
    left = calls
    while left:
        now = min(left, entry.batch) if entry.batch else left
        left -= now
        entry.restore()
        processor.prepare()
        dist.barrier(control)
        processor.start()
        started = time.perf_counter()
        for _ in range(now):
            call()
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
