"""`python -m benchmarks.training.schemes`: real trainings with each scheme, beside none.

Into build/bench/convergence.json, from which `benchmarks.training.scheme_tables` makes
tables, and `benchmarks.training.curves` the record of losses that plots are drawn from. A new
training replaces the earlier one in the file.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from afflux.torchrun import RanksFailed
from benchmarks.report.figures import merge_rows, read_rows
from benchmarks.training.convergence import NAME, measure
from benchmarks.training.plans import Run, runs
from benchmarks.training.scheme_tables import brief, text_table
from benchmarks.training.tasks import TASKS

__all__ = ["main"]

_QUICK_STEPS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Train; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.schemes", description=__doc__
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/convergence.json"),
        help="file (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--tasks", nargs="+", default=[], choices=list(TASKS), metavar="TASK",
                        help=f"of {', '.join(TASKS)}")  # fmt: skip
    parser.add_argument("--words", nargs="+", default=[], help="only schemes with these words")
    parser.add_argument("--missing", action="store_true", help="only what the file has not")
    parser.add_argument("--most", type=int, help="no more trainings than that")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    given = parser.parse_args(argv)
    wanted = runs(given.tasks, given.words)
    if given.missing:
        known = {_what(row) for row in _rows(given.output)}
        wanted = [run for run in wanted if run not in known]
    wanted = wanted[: given.most]

    def keep(row: Row) -> None:
        print(f"  {brief(row)}", flush=True)
        others = [each for each in _rows(given.output) if _what(each) != _what(row)]
        merge_rows(given.output, [NAME], [*others, row])

    try:
        with terminated_as_interrupted():
            measure(wanted, _QUICK_STEPS if given.quick else None, keep)
    except KeyboardInterrupt:
        return 130
    except RanksFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\n{text_table(_rows(given.output))}\n\nwritten to {given.output}")
    return 0


def _rows(path: Path) -> list[Row]:
    return [row for row in read_rows(path) if row["bench"] == NAME]


def _what(row: Row) -> Run:
    return Run(row["task"], row["scheme"], row["seed"])


if __name__ == "__main__":
    sys.exit(main())
