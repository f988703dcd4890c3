"""`python -m afflux.bench.engine`: speed, accuracy and bytes of the engine, as tables and JSON."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from afflux.bench import accuracy, loop, wire_bytes
from afflux.bench.figures import merge_rows
from afflux.bench.registry import Bench
from afflux.torchrun import RanksFailed

__all__ = ["BENCHES", "main"]

BENCHES: tuple[Bench, ...] = (loop.BENCH, accuracy.BENCH, wire_bytes.BENCH)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m afflux.bench.engine", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/engine.json"), help="(%(default)s)"
    )
    parser.add_argument("--only", choices=[bench.name for bench in BENCHES], nargs="+")
    parser.add_argument("--short", action="store_true", help="only show that it works")
    arguments = parser.parse_args(argv)
    try:
        for bench in BENCHES:
            if arguments.only is None or bench.name in arguments.only:
                found = bench.run(arguments.short)
                print(f"{bench.show(found)}\n", flush=True)
                merge_rows(arguments.output, [bench.name], found)
    except RanksFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"written to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
