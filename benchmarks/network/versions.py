"""`python -m benchmarks.network.versions PYTHON`: this version beside another one.

PYTHON is the interpreter of an environment that has the other version. Both sum the same tensors by
`all_reduce`, in turns, on one host and between hosts. The rows go into build/bench/network.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from benchmarks.network.launch import RanksEnded, aggregator, run_ranks
from benchmarks.network.namespaces import Network, NotPermitted, missing
from benchmarks.network.versions_rank import ROW_MARK
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.durations import duration
from benchmarks.report.figures import merge_rows, read_rows

__all__ = ["NAME", "PLANS", "main", "table"]

NAME = "versions"
"""Value of its rows' "bench"."""

Cases = tuple[tuple[str, int], ...]
"""Names of dtypes, and bytes."""

_RANK = Path(__file__).with_name("versions_rank.py")
_LIMIT_S = 180.0
_LARGE = 100_000_000
_LARGEST: Cases = (("float32", _LARGE), ("bfloat16", _LARGE))
_ALL: Cases = (*(("float32", size) for size in (4096, 1 << 16, 1 << 20)), *_LARGEST)
_HEADER = ["where", "dtype", "bytes", "before", "now", "times as fast", "CPU of a rank"]


@dataclass(frozen=True)
class Plan:
    """A network and what is summed there.

    Attributes:
        name: For `--only`, and in the table.
        hosts, ranks: Hosts, and ranks of each.
        gbit: Rate of each host; None: no limit.
        cases: What is summed.
        aggregator: Whether there is one that takes packets, at 10 Gbit/s.
        settings: AFFLUX_ variables of this version; the other one has its defaults.
    """

    name: str
    hosts: int
    ranks: int
    gbit: float | None
    cases: Cases
    aggregator: bool = False
    settings: dict[str, str] = field(default_factory=dict)


_HOST = {"AFFLUX_ROUNDING": "host"}

PLANS = (
    *(Plan(f"1 host of {ranks}", 1, ranks, None, _ALL) for ranks in (2, 4, 8)),
    Plan("2 hosts, 1 Gbit/s", 2, 1, 1.0, _ALL),
    Plan("2 hosts, 10 Gbit/s", 2, 1, 10.0, _ALL),
    Plan("2 hosts, 25 Gbit/s", 2, 1, 25.0, _ALL),
    Plan("4 hosts, 1 Gbit/s", 4, 1, 1.0, _LARGEST),
    Plan("4 hosts, 1 Gbit/s, aggregator", 4, 1, 1.0, _LARGEST, aggregator=True),
    Plan("2 hosts of 2, 1 Gbit/s", 2, 2, 1.0, _LARGEST),
    Plan("2 hosts of 2, 1 Gbit/s, rounded", 2, 2, 1.0, _LARGEST, settings=_HOST),
    Plan("2 hosts of 4, 1 Gbit/s", 2, 4, 1.0, _LARGEST),
    Plan("2 hosts of 4, 1 Gbit/s, rounded", 2, 4, 1.0, _LARGEST, settings=_HOST),
    Plan("2 hosts of 2, 10 Gbit/s", 2, 2, 10.0, _LARGEST),
    Plan("2 hosts of 2, 10 Gbit/s, rounded", 2, 2, 10.0, _LARGEST, settings=_HOST),
)


def _once(plan: Plan, python: str, settings: dict[str, str], run_s: float) -> list[list[float]]:
    """Return what one version took, by case: seconds, processor seconds, calls, wrong elements."""
    found: list[list[float]] = []

    def on_line(line: str) -> bool:
        if not line.startswith(ROW_MARK):
            return False
        found.append(json.loads(line.removeprefix(ROW_MARK)))
        return True

    with ExitStack() as held:
        network = held.enter_context(
            Network(plan.hosts, gbit=plan.gbit, aggregators=int(plan.aggregator))
        )
        if plan.aggregator:
            # A command's own AFFLUX_AGGREGATOR is not that of the ranks.
            address, _ = held.enter_context(aggregator(network.aggregator, python=python))
            settings = settings | {"AFFLUX_AGGREGATOR": f"udp://{address}"}
        arguments = ["--cases", json.dumps(plan.cases), "--run-s", str(run_s)]
        run_ranks(
            network,
            plan.ranks,
            arguments,
            on_line,
            limit_s=_LIMIT_S,
            program=[str(_RANK)],
            python=python,
            settings=settings,
        )
    return found


def _measure(
    plan: Plan, python: str, rounds: int, run_s: float, say: Callable[[str], None]
) -> list[Row]:
    """Measure one network; both versions begin as often as each other."""
    before: list[list[list[float]]] = []
    now: list[list[list[float]]] = []
    for number in range(rounds):
        for own in (True, False) if number % 2 else (False, True):
            if own:
                now.append(_once(plan, sys.executable, plan.settings, run_s))
            else:
                before.append(_once(plan, python, {}, run_s))
    rows: list[Row] = []
    for number, (dtype, size) in enumerate(plan.cases):
        row: Row = {"bench": NAME, "case": f"{plan.name}, {dtype}, {size}", "where": plan.name}
        row |= {"dtype": dtype, "bytes": size, "hosts": plan.hosts, "ranks": plan.ranks}
        for name, runs in (("before", before), ("now", now)):
            walls_s = [run[number][0] for run in runs]
            row |= {f"{name}_s": statistics.median(walls_s), f"{name}_runs_s": walls_s}
            row[f"{name}_cpu_s"] = statistics.median(run[number][1] for run in runs)
            row[f"{name}_wrong"] = sum(run[number][3] for run in runs)
        pairs = zip(row["before_runs_s"], row["now_runs_s"], strict=True)
        row["ratio"] = statistics.median(old / new for old, new in pairs)
        row["cpu_ratio"] = row["now_cpu_s"] / row["before_cpu_s"]
        rows.append(row)
        say("  " + ", ".join(_cells([row])[0]))
    return rows


def _cells(rows: list[Row]) -> list[list[str]]:
    cells = []
    for row in rows:
        times = [duration(row[f"{name}_s"]) for name in ("before", "now")]
        share = f"{row['cpu_ratio']:.2f}"
        cells.append(
            [row["where"], row["dtype"], str(row["bytes"]), *times, f"{row['ratio']:.2f}", share]
        )
    return cells


def table(rows: list[Row]) -> str:
    """Return the table for the documents."""
    return document.markdown(_HEADER, _cells(rows))


def _keep(path: Path, rows: list[Row]) -> None:
    """Write these rows into the file, in place of those of the same cases."""
    new = {row["case"] for row in rows}
    old = [row for row in read_rows(path) if row["bench"] == NAME and row["case"] not in new]
    merge_rows(path, [NAME], old + rows)


def _has_afflux(python: str) -> str:
    """Return why there is no other version; empty if there is one."""
    tried = subprocess.run(
        [python, "-c", "import afflux, torch.distributed"],
        cwd="/",
        check=False,
        capture_output=True,
        text=True,
    )
    return tried.stderr.strip().rpartition("\n")[2] if tried.returncode else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network.versions", description=__doc__
    )
    parser.add_argument("python", metavar="PYTHON", help="the other version's, such as bin/python")
    parser.add_argument(
        "--only", nargs="+", metavar="WHERE", help=f"of {'; '.join(plan.name for plan in PLANS)}"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (%(default)s)")
    parser.add_argument("--run-s", type=float, default=1.0, help="of a case (%(default)g)")
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/network.json"), help="file (%(default)s)"
    )
    given = parser.parse_args(argv)
    plans = [plan for plan in PLANS if not given.only or plan.name in given.only]
    if given.only and len(plans) < len(set(given.only)):
        parser.error(f"--only {' '.join(given.only)}: one of these is not known")
    rows: list[Row] = []
    try:
        reason = missing() or _has_afflux(given.python)
        with terminated_as_interrupted():
            for plan in [] if reason else plans:
                print(plan.name, flush=True)
                python = os.path.abspath(given.python)
                rows += _measure(plan, python, given.rounds, given.run_s, print)
                # Kept even if what follows fails.
                _keep(given.output, rows)
    except (NotPermitted, RanksEnded, OSError) as error:
        reason = str(error)
    except KeyboardInterrupt:
        return 130
    if rows:
        print(f"\n{aligned('This version beside another', _HEADER, _cells(rows))}")
        print(f"\nwritten to {given.output}")
    if reason:
        print(f"python -m benchmarks.network.versions: {reason}", file=sys.stderr)
    return 1 if reason or any(row["now_wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
