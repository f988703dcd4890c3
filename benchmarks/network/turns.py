"""Times contenders in turn, each run of about the same length, within a budget of time."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from afflux.commands.bench.cpu_time import CpuTimer, process_seconds
from benchmarks.network.topologies import NetworkSession
from benchmarks.report.sides import Side, reason_of

__all__ = ["Measured", "Pace", "take_turns"]


@dataclass(frozen=True)
class Pace:
    """How long things take.

    Attributes:
        run_s: A run of a contender, if that is more than one call.
        budget_s: All runs of a case together; there is at least one of each contender.
        repeats: Most runs of each.
        calls: Most calls of a run.
    """

    run_s: float = 0.5
    budget_s: float = 40.0
    repeats: int = 7
    calls: int = 2000


@dataclass
class Measured:
    """The times of a contender.

    Attributes:
        failed: Why it could not be measured; empty if it was.
        wrong: Wrong elements at all ranks, before and after the runs.
        runs_s: Seconds of a call, the mean over ranks, by run.
        cpu_s: Processor time of a call, the mean over ranks and runs.
        watched_cpu_s: That of the aggregator.
        calls: In a run.
        figures: Its side's figures, the mean over ranks.
    """

    failed: str = ""
    wrong: int = 0
    runs_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    watched_cpu_s: float = 0.0
    calls: int = 0
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The median over the runs."""
        return statistics.median(self.runs_s)


@dataclass
class _Entry:
    side: Side
    measured: Measured
    calls: int
    cpu_runs_s: list[float] = field(default_factory=list)
    watched_runs_s: list[float] = field(default_factory=list)


def take_turns(
    session: NetworkSession,
    makes: Mapping[str, Callable[[], Side]],
    pace: Pace,
    watched: Sequence[str],
) -> dict[str, Measured]:
    """Measure all contenders. Collective.

    A contender that raises in its first calls, at any rank, is left out, and its group renewed.

    Args:
        session: Of this rank.
        makes: Functions that make each contender's side; by name, the same at all ranks.
        pace: How long it may take.
        watched: Processes of aggregators, for rank 0, whose processor time is read too.
    """
    found: dict[str, Measured] = {}
    entries: list[_Entry] = []
    for name, make in makes.items():
        measured = found[name] = Measured()
        entry = _begin(session, make, measured, pace)
        if entry is None:
            session.renew(name)
        else:
            entries.append(entry)
    if not entries:
        return found
    watched = watched if session.rank == 0 else ()
    spent = time.monotonic()
    for repeat in range(pace.repeats):
        started = time.monotonic()
        for entry in entries if repeat % 2 == 0 else reversed(entries):
            wall_s, cpu_s, watched_s = _run(session, entry.side, entry.calls, watched)
            entry.measured.runs_s.append(session.agree(wall_s, dist.ReduceOp.SUM) / session.ranks)
            entry.cpu_runs_s.append(session.agree(cpu_s, dist.ReduceOp.SUM) / session.ranks)
            entry.watched_runs_s.append(session.agree(watched_s))
        now = time.monotonic()
        # Whether another round would end in time: all ranks must think the same.
        if session.agree(now - spent + (now - started)) > pace.budget_s:
            break
    for entry in entries:
        measured = entry.measured
        measured.wrong += int(session.agree(entry.side.wrong(), dist.ReduceOp.SUM))
        measured.cpu_s = statistics.fmean(entry.cpu_runs_s)
        measured.watched_cpu_s = statistics.fmean(entry.watched_runs_s)
        measured.calls = entry.calls
        measured.figures = {
            name: session.agree(value, dist.ReduceOp.SUM) / session.ranks
            for name, value in entry.side.figures().items()
        }
        entry.side.close()
    return found


def _begin(
    session: NetworkSession, make: Callable[[], Side], measured: Measured, pace: Pace
) -> _Entry | None:
    """Make a side, check it, and find out how many calls make a run; None if it fails."""
    side, wrong, reason, took_s = None, 0, "", 0.0
    try:
        side = make()
        wrong = side.wrong()
        side.restore()
        dist.barrier(session.control)
        started = time.perf_counter()
        side.call()
        took_s = time.perf_counter() - started
    except Exception as error:
        # Whatever it is: the others are measured all the same.
        reason = reason_of(error)
    measured.failed = session.first_reason(reason)
    if measured.failed or side is None:
        return None
    measured.wrong = int(session.agree(wrong, dist.ReduceOp.SUM))
    took_s = session.agree(took_s)
    if took_s < pace.run_s / 20:
        # A second, longer try: the first call of a small tensor says little.
        some = min(10, pace.calls)
        took_s = session.agree(_run(session, side, some, "")[0])
    calls = max(1, min(pace.calls, round(pace.run_s / took_s)))
    return _Entry(side, measured, 1 if side.batch == 1 and took_s > pace.run_s / 4 else calls)


def _run(
    session: NetworkSession, side: Side, calls: int, watched: Sequence[str]
) -> tuple[float, float, float]:
    """Return seconds, processor seconds, and those of the watched processes, of a call."""
    wall_s = cpu_s = watched_s = 0.0
    processor = CpuTimer()
    left = calls
    while left:
        now = min(left, side.batch) if side.batch else left
        left -= now
        side.restore()
        processor.prepare()
        before_s = sum(map(process_seconds, watched))
        dist.barrier(session.control)
        processor.start()
        started = time.perf_counter()
        for _ in range(now):
            side.call()
        wall_s += time.perf_counter() - started
        cpu_s += processor.stop()
        if watched:
            watched_s += sum(map(process_seconds, watched)) - before_s
    return wall_s / calls, cpu_s / calls, watched_s / calls


def all_same(session: NetworkSession, mark: int) -> bool:
    """Return whether all ranks have the same mark. Collective."""
    marks: list[Any] = [torch.empty(1, dtype=torch.int64) for _ in range(session.ranks)]
    dist.all_gather(marks, torch.tensor([mark]), group=session.control)
    return len({int(each) for each in marks}) == 1
