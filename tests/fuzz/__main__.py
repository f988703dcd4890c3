"""`python -m tests.fuzz`: random and mutated frames, as many as wanted, on the simulated engine.

Ends with status 1 at the first thing that is wrong; the same seed brings it about again.
"""

import argparse
import sys
import time

from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from tests.fuzz.fuzzer import BUILD, Fuzzer

STEP = 50_000
"""Frames after which there is a sign of life."""


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bus-bits", type=int, nargs="+", default=[512, 32])
    parser.add_argument("--batch", type=int, default=1000, help="frames played at once")
    options = parser.parse_args(arguments)
    share = options.frames // len(options.bus_bits)
    for bus_bits in options.bus_bits:
        print(f"{bus_bits} bits, seed {options.seed}, {share} frames", flush=True)
        with VerilatedEngine(bus_bits=bus_bits, **BUILD) as engine:
            begun = time.monotonic()
            try:
                fuzzer = Fuzzer(engine, options.seed, options.batch)
                for done in range(STEP, share, STEP):
                    fuzzer.run(done)
                    print(f"  {done} frames, {time.monotonic() - begun:.0f} s", flush=True)
                report = fuzzer.run(share)
            except (AssertionError, SimulationError) as error:
                print(f"FAILED: {error}")
                return 1
            seconds = time.monotonic() - begun
            cycles = engine.cycles
        print(
            f"  {report.frames / seconds:,.0f} frames/s, {cycles / seconds:,.0f} cycles/s: "
            f"{report.frames} frames in, {report.answers} out, {report.left_out} left out; "
            f"the orderly job got {report.results} results"
        )
        for name, count in report.counters.items():
            print(f"  {name:<18}{count:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
