"""`python -m benchmarks.gateware`: the hardware design, cycle by cycle, as tables and JSON.

Figures are in cycles of the engine's clock; rates are those at the clock that it aims at. How fast
this machine simulates it does not matter to them.
"""

import sys
from collections.abc import Sequence

from afflux.commands.bench.registry import Bench
from benchmarks.gateware import latency, line_rate, zero_skip
from benchmarks.gateware.engines import ENGINES
from benchmarks.report.suite import run_suite

__all__ = ["BENCHES", "main"]

BENCHES: tuple[Bench, ...] = (line_rate.BENCH, latency.BENCH, zero_skip.BENCH)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite; return the exit status."""
    try:
        return run_suite("benchmarks.gateware", __doc__, BENCHES, argv)
    finally:
        for engine in ENGINES:
            engine.close()


if __name__ == "__main__":
    sys.exit(main())
