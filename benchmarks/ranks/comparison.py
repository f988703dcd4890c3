"""Measures one case with each contender in turn; one that fails is named, and the others go on."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch.distributed as dist

from afflux.commands.bench.alternate import Entry, Plan, Timing, alternate
from afflux.commands.bench.registry import Row
from benchmarks.ranks.session import BACKENDS, Session
from benchmarks.report.sides import Side, reason_of

__all__ = ["compare"]

_RUN_S = 0.04
_REPEATS = 7
_MOST_CALLS = 4000
_MOST_BATCHES = 8


def compare(
    session: Session,
    makes: Mapping[str, Callable[[], Side]],
    floors: Mapping[str, Callable[[], object]],
    *,
    run_s: float = _RUN_S,
    repeats: int = _REPEATS,
) -> Row:
    """Return the timings of all contenders. Collective.

    A contender that raises, in its first calls, at any rank, is left out: "failed" says why. Then
    the number of calls in a run is chosen so that it takes `run_s`.

    Args:
        session: Of this rank.
        makes: Functions that make each contender's side; by name, the same at all ranks.
        floors: References that are timed beside, and can neither fail nor be wrong.
        run_s: Seconds of a run.
        repeats: Runs of each.

    Returns:
        For each contender "<name>_s", "<name>_runs_s", "<name>_cpu_s" and "<name>_wrong" ("wrong"
        for Afflux); "ratio" of Gloo's time by Afflux's, the median over pairs of runs.
    """
    row: Row = {"ranks": session.ranks, "failed": ""}
    sides: dict[str, Side] = {}
    wrong: dict[str, int] = {}
    for name, make in makes.items():
        found, count, reason = _try(session, make)
        if found is None:
            row["failed"] += f"{'; ' if row['failed'] else ''}{name}: {reason}"
            if name in BACKENDS:
                session.renew(name)
        else:
            sides[name], wrong[name] = found, count
    for name in (each for each in BACKENDS if each in sides):
        _check_called(session, name, sides[name])
    entries = [
        Entry(name, side.call, side.restore, side.batch, iterations=_calls(session, side, run_s))
        for name, side in sides.items()
    ]
    for name, call in floors.items():
        calls = _calls(session, Side(call, lambda: 0), run_s)
        entries.append(Entry(name, call, iterations=calls))
    timings = alternate(entries, Plan(1, 1, 2 if session.quick else repeats), session.control)
    for name, side in sides.items():
        # Once more at the end: the results are right after all these calls, too.
        wrong[name] += _wrong_everywhere(session, side)
        row["wrong" if name == "afflux" else f"{name}_wrong"] = wrong[name]
        side.close()
    for name, timing in timings.items():
        row[f"{name}_s"] = timing.seconds
        row[f"{name}_runs_s"] = timing.runs_s
        row[f"{name}_cpu_s"] = statistics.fmean(timing.cpu_s)
    row["repeats"] = 2 if session.quick else repeats
    row["iterations"] = {entry.key: entry.iterations for entry in entries}.get("afflux", 0)
    if "afflux" in timings:
        for name, key in (("gloo", "ratio"), ("mpi", "mpi_ratio")):
            if name in timings:
                row[key] = _paired(timings[name], timings["afflux"])
    return row


def _try(session: Session, make: Callable[[], Side]) -> tuple[Side | None, int, str]:
    """Make a contender's side, and let it work; return it, its wrong elements and what failed."""
    side, count, reason = None, 0, ""
    try:
        side = make()
        count = side.wrong()
        side.restore()
        side.call()
    except Exception as error:
        # Whatever it is: the others are measured all the same.
        reason = reason_of(error)
    if found := session.first_reason(reason):
        return None, 0, found
    return side, int(session.agree(count, dist.ReduceOp.SUM)), ""


def _check_called(session: Session, name: str, side: Side) -> None:
    """Check that a contender calls no groups of another backend.

    torch has caches by which a model may call the groups of one that was made before: two meshes
    of the same ranks whose dimensions have the same names are equal, and DTensor looks no further.

    Raises:
        AssertionError: At every rank: it does at one of them.
    """
    before = {each: session.called(each) for each in BACKENDS}
    side.restore()
    side.call()
    others = [each for each in BACKENDS if each != name and session.called(each) != before[each]]
    reason = f"{name} has called the groups of {', '.join(others)}" if others else ""
    found = session.first_reason(reason)
    assert not found, found


def _wrong_everywhere(session: Session, side: Side) -> int:
    return int(session.agree(side.wrong(), dist.ReduceOp.SUM))


def _calls(session: Session, side: Side, run_s: float) -> int:
    """Return how many calls take about `run_s`, the same at all ranks."""
    if session.quick:
        return 1
    calls, least_s = 1, float("inf")
    while True:
        side.restore()
        dist.barrier(session.control)
        now = min(calls, side.batch) if side.batch else calls
        start = time.perf_counter()
        for _ in range(now):
            side.call()
        took_s = session.agree(time.perf_counter() - start)
        # The least, as a disturbance would make all runs short.
        least_s = min(least_s, took_s / now)
        if now < calls or took_s > run_s / 4:
            most = _MOST_BATCHES * side.batch or _MOST_CALLS
            return max(2, min(most, round(run_s / least_s)))
        calls *= 4


def _paired(others: Timing, ours: Timing) -> float:
    """Return the median over pairs of runs, which follow each other: disturbances cancel."""
    pairs = zip(others.runs_s, ours.runs_s, strict=True)
    return statistics.median(other / own for other, own in pairs)
