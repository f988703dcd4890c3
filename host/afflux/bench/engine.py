"""`python -m afflux.bench.engine`: speed, accuracy and bytes of the engine, as tables and JSON."""

import sys
from collections.abc import Sequence

from afflux.bench import accuracy, loop, wire_bytes
from afflux.bench.registry import Bench
from afflux.bench.suite import run_suite
from afflux.torchrun import RanksFailed

__all__ = ["BENCHES", "main"]

BENCHES: tuple[Bench, ...] = (loop.BENCH, accuracy.BENCH, wire_bytes.BENCH)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry; returns the exit status."""
    try:
        return run_suite("afflux.bench.engine", __doc__, BENCHES, argv)
    except RanksFailed as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
