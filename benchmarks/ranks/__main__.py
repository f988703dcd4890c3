"""`python -m benchmarks.ranks`: Afflux on one host beside Gloo, into build/bench/host.json.

Each line is measured as `afflux bench --compare gloo` does, in runs that alternate. What is wanted
is shown beside what was reached; missing it is not an error, wrong elements are.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from afflux.torchrun import RanksFailed, run_module
from benchmarks.ranks.cases import CASES, RANKS, Case
from benchmarks.ranks.ddp_step import measure_step
from benchmarks.ranks.tables import text_table
from benchmarks.report.figures import merge_rows

__all__ = ["NAME", "main"]

NAME = "host"
"""Value of its rows' "bench"."""


def run_cases(cases: Sequence[Case], ranks: int, quick: bool) -> list[Row]:
    """Measure one case after the other, in one set of ranks."""
    options = [case.options(quick) for case in cases]
    arguments = ["--cases", json.dumps(options)]
    written, _ = run_module("afflux.commands.bench.rank", ranks, arguments, _own_variables(), _show)
    rows: list[Row] = []
    for case, result in zip(cases, written[0], strict=True):
        about = {"bench": NAME, "case": case.name, "quick": quick}
        rows += [{**about, **row} for row in result["rows"]]
        if "reason" in result:
            print(f"{case.title}, {ranks} ranks: {result['reason']}", flush=True)
    return rows


def _own_variables() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key.startswith("AFFLUX_")}


def _show(line: str) -> bool:
    # Headings would be most of what is printed.
    if not line.startswith("#"):
        print(line, end="", flush=True)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/host.json"), help="file (%(default)s)"
    )
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only", choices=[*names, "ddp_step"], nargs="+", help="lines of the table to measure"
    )
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=list(RANKS), help="numbers of ranks (%(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    arguments = parser.parse_args(argv)
    wanted = arguments.only or [*names, "ddp_step"]
    cases = [case for case in CASES if case.name in wanted]
    rows: list[Row] = []
    try:
        with terminated_as_interrupted():
            for ranks in arguments.ranks if cases else ():
                rows += run_cases(cases, ranks, arguments.quick)
                # Kept even if what follows fails.
                merge_rows(arguments.output, [NAME], rows)
            for ranks in arguments.ranks if "ddp_step" in wanted else ():
                row = measure_step(ranks, arguments.quick, _own_variables())
                about = {"bench": NAME, "case": "ddp_step", "quick": arguments.quick}
                rows.append({**about, **row})
                merge_rows(arguments.output, [NAME], rows)
    except RanksFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{text_table(rows)}\n\nwritten to {arguments.output}")
    return 1 if any(row.get("wrong") or not row["same_bits"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
