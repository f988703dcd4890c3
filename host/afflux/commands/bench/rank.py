"""One rank of `afflux bench`: it goes through the sizes, measures, checks, and prints at rank 0."""

import argparse
import json
import os
import platform
import resource
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import afflux
from afflux.commands.bench import contenders, nccl_format
from afflux.commands.bench.alternate import Entry, Plan, Timing, alternate
from afflux.commands.bench.catalogue import COLLECTIVES, Collective
from afflux.commands.bench.collectives import Trial, prepare
from afflux.commands.bench.inputs import DTYPES, Inputs
from afflux.commands.bench.mpi_launch import NotAvailable
from afflux.commands.bench.options import BenchOptions, add_arguments, read_options
from afflux.commands.bench.processor import processor_name
from afflux.commands.bench.registry import Row
from afflux.commands.bench.replay import replay
from afflux.commands.bench.side_table import side_table
from afflux.torchrun import end_with_parent
from afflux_drivers.errors import AffluxError

__all__ = ["CAUSE", "main", "measure"]

CAUSE = "afflux bench: "
"""The line of a rank that gives up begins so."""

_LAUNCH_TIMEOUT_S = 300.0

_WAYS = ("small", "staged", "one_pass")
"""The algorithms of shared memory, by the names of their counts in its statistics."""


@dataclass
class _Groups:
    """The process groups of a rank: `control`, which is not timed, and those of contenders."""

    control: Any
    afflux: Any
    gloo: Any
    rank: int = field(init=False)
    ranks: int = field(init=False)

    def __post_init__(self) -> None:
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()


def join(timeout_s: float, with_gloo: bool) -> _Groups:
    """Make the groups of this rank, from the environment that torchrun has set."""
    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", timeout=timedelta(seconds=max(timeout_s, _LAUNCH_TIMEOUT_S)))
    ours = dist.new_group(backend="afflux", timeout=timeout)
    return _Groups(
        dist.group.WORLD,
        ours,
        dist.new_group(backend="gloo", timeout=timeout) if with_gloo else None,
    )


def measure(options: BenchOptions, groups: _Groups) -> list[Row]:
    """Measure all sizes, types and reductions, and print at rank 0. Collective.

    Raises:
        NotAvailable: Something that the options ask for is not here; at every rank.
    """
    show: Callable[[str], None] = _print if groups.rank == 0 and options.table else _ignore
    if options.replay:
        element = DTYPES["float"]
        return replay(
            _contenders(options, groups, element), groups.control, options.iterations, show
        )
    devices = _devices(groups)
    show(_heading(options, groups, devices))
    rows: list[Row] = []
    for _ in range(options.cycles):
        for op, dtype, size in options.cases:
            row = _measure_one(options, groups, size, dtype, op)
            rows.append(row)
            stamp = time.strftime("  %Y-%m-%d %H:%M:%S") if options.timestamps else ""
            show(_line(row) + stamp)
    wrong = sum((row["wrong"] or 0) + (row["out_of_place_wrong"] or 0) for row in rows)
    program = COLLECTIVES[options.collective].program
    show(nccl_format.summary(wrong, _all_bandwidths(rows), program))
    show(side_table(rows, options.compare))
    if options.memory:
        peak = max(row["peak_memory_bytes"] for row in rows)
        show(f"# Peak memory of a rank : {peak / 2**20:.1f} MiB")
    return rows


def _measure_one(options: BenchOptions, groups: _Groups, size: int, dtype: str, op: str) -> Row:
    element = DTYPES[dtype]
    collective = COLLECTIVES[options.collective]
    count = collective.count(size, element.itemsize, groups.ranks)
    inputs = Inputs(count, element, groups.ranks, options.density, options.seed)
    ours, *others = _contenders(options, groups, element)
    of_key = {"afflux": prepare(collective, ours, inputs, op, groups.rank, in_place=True)}
    if options.out_of_place:
        of_key["out_of_place"] = prepare(collective, ours, inputs, op, groups.rank, in_place=False)
    for other in others:
        of_key[other.name] = prepare(collective, other, inputs, op, groups.rank, in_place=True)
    entries = [_entry(key, trial) for key, trial in of_key.items()]
    entries += _floors(collective, inputs, of_key["afflux"])
    before = afflux.statistics(groups.afflux)
    plan = Plan(options.iterations, options.warmup, options.repeats, options.average)
    timings = alternate(entries, plan, groups.control)

    about = afflux.statistics(groups.afflux)
    about["way"] = _way(before, about)
    wrong = {key: _check(trial, options.checks, groups) for key, trial in of_key.items()}
    return _row(options, groups, inputs, dtype, op, timings, wrong, about)


def _contenders(
    options: BenchOptions, groups: _Groups, element: torch.dtype
) -> list[contenders.Contender]:
    """Return Afflux and those that it is compared with."""
    found: list[contenders.Contender] = [contenders.Afflux(groups.afflux, options.reachable)]
    if "gloo" in options.compare:
        found.append(contenders.Gloo(groups.gloo))
    if "mpi" in options.compare:
        found.append(contenders.Mpi(groups.ranks, element))
    return found


def _entry(key: str, trial: Trial) -> Entry:
    compared = trial.result if key in ("afflux", "out_of_place") and trial.same_at_all else None
    return Entry(key, trial.call, trial.restore, trial.batch, compared)


def _floors(collective: Collective, inputs: Inputs, trial: Trial) -> list[Entry]:
    """Return what memory allows at best: see `docs/benchmarks.md`."""
    if not collective.sized:
        return []
    ordinary = torch.empty(trial.result.numel(), dtype=inputs.dtype)
    if collective.name == "all_reduce":
        return [
            Entry("floor", lambda: contenders.add_one(ordinary), lambda: ordinary.fill_(0)),
            Entry("read_floor", lambda: contenders.read_all(ordinary)),
        ]
    size = collective.bytes(inputs.count, inputs.dtype.itemsize, inputs.ranks)
    moved = max(1, round(size * collective.bus_factor(inputs.ranks)))
    here, there = torch.zeros(moved, dtype=torch.uint8), torch.zeros(moved, dtype=torch.uint8)
    return [Entry("floor", lambda: there.copy_(here))]


def _way(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return how the calls between two readings of the statistics went."""
    ways = [way for way in _WAYS if after.get(way, 0) > before.get(way, 0)]
    if after["operations_gloo"] > before["operations_gloo"]:
        return "gloo"
    carriers = {"shm": "shared", "streams": "streams"}
    return "+".join(ways) or carriers.get(after["engine"], "packets")


def _check(trial: Trial, times: int, groups: _Groups) -> int | None:
    """Wrong elements of all ranks after calls with fresh data; None if unchecked."""
    if not times:
        return None
    total = torch.tensor([sum(trial.wrong() for _ in range(times))])
    dist.all_reduce(total, group=groups.control)
    return int(total)


def _row(
    options: BenchOptions,
    groups: _Groups,
    inputs: Inputs,
    dtype: str,
    op: str,
    timings: dict[str, Timing],
    wrong: dict[str, int | None],
    about: dict[str, Any],
) -> Row:
    collective = COLLECTIVES[options.collective]
    size = collective.bytes(inputs.count, inputs.dtype.itemsize, inputs.ranks)
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024])
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=groups.control)
    mine = timings["afflux"]
    row: Row = {
        "what": collective.name,
        "ranks": groups.ranks,
        "bytes": size,
        "count": inputs.count,
        "dtype": dtype,
        "op": op,
        "density": options.density,
        "reachable": options.reachable,
        "engine": about["engine"],
        "way": about["way"],
        "iterations": options.iterations,
        "repeats": options.repeats,
        "average": options.average,
        "algbw_gb_per_s": nccl_format.algorithm_bandwidth(size, mine.seconds),
        "busbw_gb_per_s": nccl_format.bus_bandwidth(
            size, mine.seconds, collective.bus_factor(groups.ranks)
        ),
        "wrong": wrong["afflux"],
        "same_bits": mine.same_bits,
        "peak_memory_bytes": int(peak),
        "out_of_place_wrong": wrong.get("out_of_place"),
    }
    for key, timing in timings.items():
        row[f"{key}_s"] = timing.seconds
        row[f"{key}_runs_s"] = timing.runs_s
        row[f"{key}_cpu_s"] = sum(timing.cpu_s) / len(timing.cpu_s)
        row[f"{key}_cpu_by_rank_s"] = timing.cpu_s
    for name in options.compare:
        row[f"{name}_wrong"] = wrong[name]
    if "gloo" in options.compare:
        row["ratio"] = row["gloo_s"] / row["afflux_s"]
    if "out_of_place" in timings:
        row["out_of_place_same_bits"] = timings["out_of_place"].same_bits
    return row


def _line(row: Row) -> str:
    collective = COLLECTIVES[row["what"]]
    outer = None
    if "out_of_place_s" in row:
        outer = nccl_format.Column(row["out_of_place_s"], row["out_of_place_wrong"])
    inner = nccl_format.Column(row["afflux_s"], row["wrong"])
    factor = collective.bus_factor(row["ranks"])
    return nccl_format.line(
        row["bytes"], row["count"], row["dtype"], row["op"], collective.root, factor, outer, inner
    )


def _all_bandwidths(rows: Sequence[Row]) -> list[float]:
    return [
        nccl_format.bus_bandwidth(
            row["bytes"], row[key], COLLECTIVES[row["what"]].bus_factor(row["ranks"])
        )
        for row in rows
        for key in ("out_of_place_s", "afflux_s")
        if key in row
    ]


def _heading(options: BenchOptions, groups: _Groups, devices: list[str]) -> str:
    about = afflux.statistics(groups.afflux)
    notes = [
        f"engine {about['engine']} ({about['aggregator']}), torch {torch.__version__}",
    ]
    collective = COLLECTIVES[options.collective]
    if collective.copies:
        notes.append(
            f"out-of-place: a copy, then in place, as torch has no other {collective.name}; both "
            "are timed"
        )
    if options.density < 1:
        notes.append(
            f"{options.density:g} of the blocks of 256 bytes are not zero; in place, data are "
            "restored before each call, untimed"
        )
    if options.reachable:
        notes.append("tensors of afflux.empty")
    return nccl_format.heading(
        program=collective.program,
        least=options.least,
        most=options.most,
        step=options.step,
        warmup=options.warmup,
        iterations=options.iterations,
        checks=options.checks,
        version=afflux.__version__,
        notes=notes,
        devices=devices,
    )


def _devices(groups: _Groups) -> list[str]:
    """Return a line for each rank, with host, process and processor."""
    mine = (
        f"#  Rank {groups.rank:2d} Group  0 Pid {os.getpid():6d} on {socket.gethostname():>10} "
        f"device {groups.rank:2d} [cpu] {processor_name() or platform.machine()}"
    )
    found: list[str] = [""] * groups.ranks
    dist.all_gather_object(found, mine, group=groups.control)
    return found


def _print(text: str) -> None:
    print(text, flush=True)


def _ignore(text: str) -> None:
    pass


def main() -> int:
    """Run one rank that torchrun started: write the results of all cases into the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--cases", type=json.loads, required=True, help="lists of options, as JSON")
    given = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    case_parser = argparse.ArgumentParser()
    add_arguments(case_parser)
    cases = [read_options(case_parser, case_parser.parse_args(case)) for case in given.cases]
    longest_s = max(case.timeout_s for case in cases)
    results: list[dict[str, Any]] = []
    try:
        groups = join(longest_s, any("gloo" in case.compare for case in cases))
        for case in cases:
            try:
                results.append({"rows": measure(case, groups)})
            except NotAvailable as reason:
                results.append({"rows": [], "reason": str(reason)})
    except AffluxError as error:
        # Its text is the cause, which the places of many ranks would bury.
        print(f"{CAUSE}{error}", file=sys.stderr, flush=True)
        return 1
    path = given.folder / f"rank{groups.rank}.json"
    path.write_text(json.dumps(results), encoding="utf-8")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
