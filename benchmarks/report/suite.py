"""The command line of a suite of benchmarks that write into one file of figures."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from afflux.commands.bench.registry import Bench
from benchmarks.report.figures import merge_rows

__all__ = ["run_suite"]


def run_suite(
    name: str, about: str | None, benches: Sequence[Bench], argv: Sequence[str] | None
) -> int:
    """Run the benchmarks that are asked for; print and keep the rows of each when it is over.

    Args:
        name: The module that is run with `python -m`.
        about: The text of `--help`.
        benches: All benchmarks.
        argv: The command line; that of the process if None.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=about)
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/engine.json"), help="file (%(default)s)"
    )
    parser.add_argument("--only", choices=[bench.name for bench in benches], nargs="+")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    arguments = parser.parse_args(argv)
    try:
        for bench in benches:
            if arguments.only is None or bench.name in arguments.only:
                rows = bench.run(arguments.quick)
                print(f"{bench.show(rows)}\n", flush=True)
                merge_rows(arguments.output, [bench.name], rows)
    except KeyboardInterrupt:
        return 130
    print(f"written to {arguments.output}")
    return 0
