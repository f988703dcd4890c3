"""One rank of a training between hosts, until a loss is reached: how long it took.

`benchmarks.network.to_loss` starts these ranks. Gloo with everything sent, Afflux with everything
sent, and schemes over Afflux begin with the same weights, and get the same batches.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import afflux
from afflux.commands.bench.cpu_time import CpuTimer
from afflux.commands.bench.registry import Row
from afflux.torchrun import end_with_parent
from benchmarks.report.control import Control
from benchmarks.report.sides import reason_of
from benchmarks.training.learning import Learning
from benchmarks.training.smoothing import WINDOW, last_mean
from benchmarks.training.tasks import TASKS, Task

__all__ = ["MARK", "main"]

MARK = "to loss: "
"""Begins the line of a training that is over."""

_TIMEOUT = timedelta(seconds=120)

_PIECE = 5
"""Steps between two looks at the loss, which are outside the time."""

_SEED = 1


@dataclass
class _Clock:
    """The time of pieces of a training: the longest rank's time, and all ranks' processor time."""

    session: Control
    seconds: float = 0.0
    cpu_s: float = 0.0
    pieces: list[float] = field(default_factory=list)

    def run(self, learning: Learning, steps: int) -> None:
        """Take steps, between barriers."""
        processor = CpuTimer()
        processor.prepare()
        dist.barrier(self.session.control)
        processor.start()
        started = time.perf_counter()
        for _ in range(steps):
            learning.step()
        took_s = time.perf_counter() - started
        used_s = processor.stop()
        took_s = self.session.agree(took_s)
        self.pieces.append(took_s / steps)
        self.seconds += took_s
        self.cpu_s += self.session.agree(used_s, dist.ReduceOp.SUM)


def _train(session: Control, task: Task, scheme: str, group: Any, steps: int) -> Row:
    """Train until the task's loss is reached; collective."""
    learning = Learning(task, scheme, _SEED, group, session.rank, session.ranks)
    clock = _Clock(session)
    losses: list[float] = []
    reached = False
    try:
        while not reached and len(losses) < steps:
            # The first step meets a model that DDP does not know yet.
            count = min(_PIECE if losses else 1, steps - len(losses))
            clock.run(learning, count)
            own = torch.tensor(learning.losses[-count:], dtype=torch.float64)
            dist.all_reduce(own, group=session.control)
            losses += (own / session.ranks).tolist()
            reached = len(losses) >= WINDOW and last_mean(losses) <= task.target
    except Exception as error:
        # A scheme may refuse what is not finite: at all ranks.
        return {"failed": reason_of(error), "steps": len(learning.losses)}
    return {
        "failed": "",
        "reached": reached,
        "steps": len(losses),
        "seconds": clock.seconds,
        # Those behind the first one.
        "step_s": sum(clock.pieces[1:]) / max(1, len(clock.pieces) - 1),
        "cpu_s": clock.cpu_s / session.ranks / len(losses),
        "loss": last_mean(losses),
    }


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=list(TASKS), required=True)
    parser.add_argument("--aggregator", required=True, help="address and port of the one that runs")
    parser.add_argument("--contenders", nargs="+", required=True, help='"gloo", "udp/WORDS", …')
    parser.add_argument("--steps", type=int, help="at most; as many as the task has")
    given = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=_TIMEOUT)
    session = Control()
    task = TASKS[given.task]
    steps = given.steps or task.steps
    groups: dict[str, Any] = {}
    for contender in given.contenders:
        way, _, scheme = contender.partition("/")
        if way not in groups:
            groups[way] = _group(way, given.aggregator)
        row = _train(session, task, scheme, groups[way], steps)
        if session.rank == 0:
            about = {"way": way, "scheme": scheme, "ranks": session.ranks, "target": task.target}
            print(MARK + json.dumps(about | row), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _group(way: str, aggregator: str) -> Any:
    if way == "gloo":
        return dist.new_group(backend="gloo", timeout=_TIMEOUT)
    url = f"udp://{aggregator}" if way == "udp" else way
    options = afflux.Options(aggregator=url)
    return dist.new_group(backend="afflux", timeout=_TIMEOUT, pg_options=options)


if __name__ == "__main__":
    sys.exit(main())
