"""`python -m benchmarks.training`: speed, accuracy and bytes of the engine, as tables and JSON."""

import sys
from collections.abc import Sequence

from afflux.commands.bench.registry import Bench
from afflux.torchrun import RanksFailed
from benchmarks.report.suite import run_suite
from benchmarks.training import accuracy, loop, wire_bytes

__all__ = ["BENCHES", "main"]

BENCHES: tuple[Bench, ...] = (loop.BENCH, accuracy.BENCH, wire_bytes.BENCH)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite; return the exit status."""
    try:
        return run_suite("benchmarks.training", __doc__, BENCHES, argv)
    except RanksFailed as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
