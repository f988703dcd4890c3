"""Real trainings with each scheme, beside trainings with everything sent: where the loss goes.

Four ranks on this host: what schemes average does not depend on the link. They share memory; the
last steps of each training take an aggregator instead, which is the same to the bit, to count what
goes over a wire.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import afflux
from afflux.commands.bench.registry import Row
from afflux.torchrun import end_with_parent, run_module
from benchmarks.report.control import Control
from benchmarks.report.sides import reason_of
from benchmarks.training.corpus import corpus
from benchmarks.training.learning import Learning
from benchmarks.training.plans import Run
from benchmarks.training.tasks import TASKS

__all__ = ["NAME", "RANKS", "main", "measure"]

NAME = "convergence"
"""Value of its rows' "bench"."""

RANKS = 4

_MARK = "convergence: "
"""Begins the line of what a training came to: what is known outlives a rank that dies later."""

_METERED = 10
"""Steps at the end of a training, in which bytes are counted."""

_LOOKS = 6
"""How often a training looks at what is held out."""

_TIMEOUT = timedelta(seconds=120)


def measure(runs: Sequence[Run], steps: int | None, keep: Callable[[Row], None]) -> None:
    """Train; in new ranks for each task.

    Args:
        runs: The trainings to run.
        steps: Of each training, if not the task's.
        keep: Called with each row as it is known.

    Raises:
        RanksFailed: Ranks ended badly.
    """

    def on_line(line: str) -> bool:
        if not line.startswith(_MARK):
            return False
        keep(json.loads(line.removeprefix(_MARK)))
        return True

    for task in dict.fromkeys(run.task for run in runs):
        of_task = [asdict(run) for run in runs if run.task == task]
        arguments = ["--runs", json.dumps(of_task)]
        arguments += ["--steps", str(steps)] if steps else []
        run_module("benchmarks.training.convergence", RANKS, arguments, {}, on_line)


class _Session(Control):
    """A rank's groups: one that shares memory, and one with an aggregator that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.group: Any = dist.new_group(backend="afflux", timeout=_TIMEOUT)
        self.metered: Any = dist.new_group(
            backend="afflux", timeout=_TIMEOUT, pg_options=afflux.Options(aggregator="soft://")
        )

    def frame_bytes(self) -> tuple[int, int]:
        """Return the bytes of frames that this rank has sent, and received."""
        counted = afflux.statistics(self.metered)
        return counted["frame_bytes_sent"], counted["frame_bytes_received"]


def _train(session: _Session, run: Run, steps: int) -> Row:
    """Train once; collective. The row of rank 0 counts."""
    task = TASKS[run.task]
    started = time.monotonic()
    learning = Learning(task, run.scheme, run.seed, session.group, session.rank, session.ranks)
    looks = {max(1, round(number * steps / _LOOKS)) for number in range(1, _LOOKS + 1)}
    held_out = [(0, learning.held_out())]
    reason, before, counted_from = "", (0, 0), 0
    for step in range(1, steps + 1):
        if learning.scheme is not None and step == max(1, steps - _METERED + 1):
            learning.scheme.group = session.metered
            before, counted_from = session.frame_bytes(), step - 1
        try:
            learning.step()
        except Exception as error:
            # A scheme may refuse what is not finite: at all ranks.
            reason = reason_of(error)
        if reason or session.agree(learning.lost):
            reason = reason or "the loss is not finite"
            break
        if step in looks:
            held_out.append((step, learning.held_out()))
    row: Row = {
        "bench": NAME,
        **asdict(run),
        "ranks": session.ranks,
        "steps": steps,
        "elements": learning.elements,
        "failed": reason,
        "seconds": time.monotonic() - started,
    }
    losses = torch.tensor(learning.losses, dtype=torch.float64)
    dist.all_reduce(losses, group=session.control)
    row["losses"] = [round(each, 5) for each in (losses / session.ranks).tolist()]
    row["held_out"] = [[step, round(loss, 5)] for step, loss in held_out]
    if learning.scheme is not None:
        if not task.sparse:
            # Its estimate for one tensor; DDP makes two or three buckets.
            volume = learning.scheme.compressor.volume(learning.elements, session.ranks)
            row["volume_bytes"] = volume
        if counted_from and not reason:
            for key, first, last in zip(
                ("sent_bytes", "received_bytes"), before, session.frame_bytes(), strict=True
            ):
                row[key] = session.agree((last - first) / (steps - counted_from))
    if run.task != "digits":
        row["text"] = corpus().mark
    return row


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--runs", type=json.loads, required=True, help="as JSON")
    parser.add_argument("--steps", type=int)
    given = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=_TIMEOUT)
    session = _Session()
    for values in given.runs:
        run = Run(**values)
        row = _train(session, run, given.steps or TASKS[run.task].steps)
        if session.rank == 0:
            print(_MARK + json.dumps(row), flush=True)
    (given.folder / f"rank{session.rank}.json").write_text("{}", encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
