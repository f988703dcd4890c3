"""`python -m benchmarks.network.shares`: what jobs and TCP streams get of a wire that they share.

Two hosts at 1 Gbit/s; a job is a rank on each that sums a dense tensor again and again. Beside one
there is nothing, another job, or a plain TCP stream from the first host to the second. The rows go
into build/bench/network.json.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from benchmarks.network.launch import RanksEnded, run_ranks
from benchmarks.network.namespaces import Network, NotPermitted, missing
from benchmarks.network.shares_rank import ROW_MARK
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.figures import merge_rows

__all__ = ["NAME", "main", "table"]

NAME = "shares"
"""Value of its rows' "bench"."""

_HEADER = ["backend", "on the wire", "the job", "the other", "the job's share"]
_LIMIT_S = 120.0


def _measure(gbit: float, seconds: float) -> list[Row]:
    rows: list[Row] = []

    def on_line(line: str) -> bool:
        if not line.startswith(ROW_MARK):
            return False
        backend, case, job, other = json.loads(line.removeprefix(ROW_MARK))
        row: Row = {"bench": NAME, "case": f"{backend}, {case}", "backend": backend, "beside": case}
        row |= {"rate_gbit": gbit, "seconds": seconds}
        rows.append(row | {"job_bytes_per_s": job, "other_bytes_per_s": other})
        return True

    with Network(2, gbit=gbit, aggregators=0) as network:
        program = ["-m", "benchmarks.network.shares_rank"]
        arguments = ["--seconds", str(seconds)]
        run_ranks(network, 2, arguments, on_line, limit_s=_LIMIT_S, program=program)
    return rows


def _cells(rows: list[Row]) -> list[list[str]]:
    cells = []
    for row in rows:
        job, other = row["job_bytes_per_s"], row["other_bytes_per_s"]
        rates = [f"{each * 8e-9:.2f} Gbit/s" if each else "–" for each in (job, other)]
        share = f"{job / (job + other):.2f}" if other else "–"
        cells.append([row["backend"], row["beside"], *rates, share])
    return cells


def table(rows: list[Row]) -> str:
    """Return the table for the documents."""
    return document.markdown(_HEADER, _cells(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network.shares", description=__doc__
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/network.json"), help="file (%(default)s)"
    )
    parser.add_argument("--gbit", type=float, default=1.0, help="of each host (%(default)g)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a case (%(default)g)")
    given = parser.parse_args(argv)
    reason = missing()
    try:
        with terminated_as_interrupted():
            rows = [] if reason else _measure(given.gbit, given.seconds)
    except (NotPermitted, RanksEnded) as error:
        reason = str(error)
    except KeyboardInterrupt:
        return 130
    if reason:
        print(f"python -m benchmarks.network.shares: {reason}", file=sys.stderr)
        return 1
    merge_rows(given.output, [NAME], rows)
    print(aligned("Rates; of a job each way", _HEADER, _cells(rows)))
    print(f"\nwritten to {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
