"""`python -m benchmarks.ranks`: Afflux on one host beside Gloo, into build/bench/host.json.

Lines of all-reduce are measured as `afflux bench --compare gloo` does; the families measure what
else is called through torch.distributed. Runs of Afflux and Gloo alternate. Targets are shown
beside the figures; missing one is not an error, but wrong elements are, and so is a call that works
with Gloo and fails with Afflux.
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
from benchmarks.ranks.families import FAMILIES
from benchmarks.ranks.family_run import run_family
from benchmarks.ranks.family_tables import family_table
from benchmarks.ranks.tables import text_table
from benchmarks.report.figures import merge_rows

__all__ = ["NAME", "failed", "main"]

NAME = "host"
"""Value of its rows' "bench", but for those of families."""

_NAMES = (*(case.name for case in CASES), "ddp_step")


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


def run_families(
    wanted: Sequence[str], numbers_of_ranks: Sequence[int], quick: bool, output: Path
) -> list[Row]:
    """Measure the families that are asked for; keep each one's rows when it is over.

    Args:
        wanted: Names of families, or "FAMILY:CASE" with the beginning of a case's name.
        numbers_of_ranks: Those that a case is not measured with are left out.
        quick: Only show that it works.
        output: The file of figures.
    """
    rows: list[Row] = []
    for family in FAMILIES.values():
        asked = [each.partition(":") for each in wanted if each.partition(":")[0] == family.name]
        if not asked:
            continue
        patterns = [] if any(not case for _, _, case in asked) else [case for *_, case in asked]
        of_family: list[Row] = []

        def keep(row: Row, of_family: list[Row] = of_family) -> None:
            of_family.append(row)
            found = f"{row['ratio']:.2f}" if "ratio" in row else "–"
            print(f"  {row['case']} {found}", flush=True)

        for ranks in numbers_of_ranks:
            if family.cases_of(ranks, patterns):
                print(f"{family.name}, {ranks} ranks, times as fast as Gloo:", flush=True)
                run_family(family, ranks, patterns, quick, keep)
                merge_rows(output, [family.bench], of_family)
        rows += of_family
        print(f"\n{family_table(family, of_family)}\n", flush=True)
    return rows


def failed(row: Row) -> bool:
    """Return whether a row shows what must not be: wrong elements, or Afflux failing alone."""
    if row.get("not_measured"):
        return False
    wrong = row.get("wrong") or row.get("same_bits") is False
    return bool(wrong) or ("afflux_s" not in row and "gloo_s" in row)


def _wanted(text: str) -> str:
    name, _, case = text.partition(":")
    if name in FAMILIES:
        if case and not FAMILIES[name].begins(case):
            raise argparse.ArgumentTypeError(f"{text!r}: no case of {name} begins with {case!r}")
    elif text not in _NAMES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join((*_NAMES, *FAMILIES))}, nor FAMILY:CASE"
        )
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/host.json"), help="file (%(default)s)"
    )
    parser.add_argument(
        "--only", type=_wanted, nargs="+", metavar="NAME", default=[*_NAMES, *FAMILIES],
        help=f"what to measure: {', '.join(_NAMES)}; the families {', '.join(FAMILIES)}, or a part "
        "of one, as in collectives:broadcast",
    )  # fmt: skip
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=list(RANKS), help="numbers of ranks (%(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    arguments = parser.parse_args(argv)
    cases = [case for case in CASES if case.name in arguments.only]
    steps = arguments.ranks if "ddp_step" in arguments.only else ()
    rows: list[Row] = []
    try:
        with terminated_as_interrupted():
            for ranks in arguments.ranks if cases else ():
                rows += run_cases(cases, ranks, arguments.quick)
                # Kept even if what follows fails.
                merge_rows(arguments.output, [NAME], rows)
            for ranks in steps:
                row = measure_step(ranks, arguments.quick, _own_variables())
                about = {"bench": NAME, "case": "ddp_step", "quick": arguments.quick}
                rows.append({**about, **row})
                merge_rows(arguments.output, [NAME], rows)
            if rows:
                print(f"\n{text_table(rows)}\n", flush=True)
            rows += run_families(arguments.only, arguments.ranks, arguments.quick, arguments.output)
    except RanksFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"written to {arguments.output}")
    return 1 if any(map(failed, rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
