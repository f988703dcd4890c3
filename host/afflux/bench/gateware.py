"""`python -m afflux.bench.gateware`: the hardware design, cycle by cycle, as tables and JSON.

Figures are in cycles of the engine's clock; rates are those at the clock that it aims at. How fast
this machine simulates it does not matter to them.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from afflux.bench import latency, line_rate, zero_skip
from afflux.bench.figures import merge_rows
from afflux.bench.gateware_engines import ENGINES
from afflux.bench.registry import Bench

__all__ = ["BENCHES", "main"]

BENCHES: tuple[Bench, ...] = (line_rate.BENCH, latency.BENCH, zero_skip.BENCH)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m afflux.bench.gateware", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/engine.json"), help="(%(default)s)"
    )
    parser.add_argument("--only", choices=[bench.name for bench in BENCHES], nargs="+")
    parser.add_argument("--quick", action="store_true", help="a few points of each")
    arguments = parser.parse_args(argv)
    try:
        for bench in BENCHES:
            if arguments.only is None or bench.name in arguments.only:
                rows = bench.run(arguments.quick)
                print(f"{bench.show(rows)}\n", flush=True)
                merge_rows(arguments.output, [bench.name], rows)
    except KeyboardInterrupt:
        return 130
    finally:
        for engine in ENGINES:
            engine.close()
    print(f"added to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
