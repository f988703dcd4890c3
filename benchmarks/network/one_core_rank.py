"""One rank of `benchmarks.network.one_core`: rank 0 measures itself and prints what it found."""

import argparse
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

import afflux
from afflux.commands.forecast.stages import measure_stages
from afflux.torchrun import end_with_parent
from benchmarks.network.one_core import ROW_MARK
from benchmarks.report.control import Control

__all__ = ["main"]

_TIMEOUT = timedelta(seconds=60)


@dataclass
class _Kind:
    """All-reduces of one kind, as this rank sees them.

    Attributes:
        group: Of the ranks that take part; None if this one does not.
        value: What the elements of this rank are before a call.
        total: What they must be afterwards.
        samples: What the calls took, by name.
    """

    group: Any
    value: float
    total: float
    samples: dict[str, list[float]] = field(default_factory=dict)
    wrong: int = 0

    def call(self, tensor: torch.Tensor, barrier: Callable[[], object]) -> None:
        """Make a call, and note what it took for a byte of the tensor."""
        tensor.fill_(self.value)
        barrier()
        if self.group is None:
            return
        calls = afflux.statistics(self.group)["system_calls"]
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        dist.all_reduce(tensor, group=self.group)
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        kernel_s = resource.getrusage(resource.RUSAGE_SELF).ru_stime - used.ru_stime
        calls = afflux.statistics(self.group)["system_calls"] - calls
        self.wrong += int((tensor != self.total).sum())
        for name, value in (
            ("s_per_byte", cpu_s / tensor.nbytes),
            ("wall_s_per_byte", wall_s / tensor.nbytes),
            ("kernel_s_per_byte", kernel_s / tensor.nbytes),
            ("calls_per_mb", calls / (tensor.nbytes * 1e-6)),
        ):
            self.samples.setdefault(name, []).append(value)


def _measure(session: Control, given: argparse.Namespace) -> dict[str, Any]:
    alone = _group([0], given)
    all_ranks = _group(list(range(session.ranks)), given)
    kinds = {
        "both": _Kind(alone if session.rank == 0 else None, 3.0, 3.0),
        "receive": _Kind(all_ranks, float(session.rank), float(sum(range(session.ranks)))),
    }
    tensor = torch.ones(given.bytes // 4)
    slots = 1
    if session.rank == 0:
        slots = afflux.statistics(alone)["slots"]
    found: list[dict[str, float]] = []
    for repeat in range(given.repeats + 1):
        for kind in kinds.values():
            kind.call(tensor, lambda: dist.barrier(session.control))
            if repeat == 0:
                # The first calls meet cold caches and a narrow window.
                kind.samples.clear()
        if session.rank == 0 and repeat:
            found.append(vars(measure_stages(given.lanes, slots, given.bytes, repeats=1)))
    row: dict[str, Any] = {
        f"{name}_{what}": median(values)
        for name, kind in kinds.items()
        for what, values in kind.samples.items()
    }
    row |= {
        f"{name}_runs_s_per_byte": kind.samples.get("s_per_byte") for name, kind in kinds.items()
    }
    # The kernel tells its own time from the program's at clock ticks: one call has few of them.
    row |= {
        f"{name}_kernel_share": sum(kind.samples["kernel_s_per_byte"])
        / sum(kind.samples["s_per_byte"])
        for name, kind in kinds.items()
        if kind.samples
    }
    if found:
        row |= {f"stage_{name}_s": median(each[name] for each in found) for name in found[0]}
    wrong = session.agree(sum(kind.wrong for kind in kinds.values()), dist.ReduceOp.SUM)
    return row | {"wrong": int(wrong), "slots": slots}


def _group(ranks: list[int], given: argparse.Namespace) -> Any:
    url = f"udp://{given.aggregator}"
    options = afflux.Options(aggregator=url, lanes=given.lanes, slots=given.slots)
    return dist.new_group(ranks, backend="afflux", timeout=_TIMEOUT, pg_options=options)


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aggregator", required=True, help="address and port")
    parser.add_argument("--lanes", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument(
        "--cores", type=int, nargs=2, required=True, help="rank 0's, and the others'"
    )
    given = parser.parse_args()
    end_with_parent()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=_TIMEOUT)
    session = Control()
    # Threads that exist already stay where they are: they only wait.
    os.sched_setaffinity(0, {given.cores[min(session.rank, 1)]})
    row = _measure(session, given)
    if session.rank == 0:
        print(f"{ROW_MARK}{json.dumps(row)}", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
