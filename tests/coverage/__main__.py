"""`python -m tests.coverage`: what of the engine's Verilog the checks run and toggle.

Writes a folder for each width of the bus under `build/coverage` and prints tables. The checks are
those that mutants are judged by.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from afflux_hdl.engine.verilog import generate
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.initial_values import loops_for_initial_values
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.coverage.points import read_points
from tests.coverage.report import Report
from tests.mutation.battery import full_battery, parameters, short_battery
from tests.support.checkout import BUILD as BUILD_FOLDER
from tests.support.counter_starts import CountsFromStart, counters_that_start_late

WANTED = 0.95


def measure(bus_bits: int, short: bool) -> Report:
    """Run all checks, with a reset before each."""
    # Else the upper bits of its counters would toggle after years.
    with counters_that_start_late():
        verilog = generate(parameters(bus_bits))
    begun = time.monotonic()
    library = build_library(find_toolchain(), default_folder(), verilog, bus_bits, coverage=True)
    print(f"{bus_bits} bits, built in {time.monotonic() - begun:.0f} s", flush=True)
    battery = short_battery(bus_bits) if short else full_battery(bus_bits)
    # One engine for all, since opening and reading hundreds of thousands of points takes longest.
    with VerilatedEngine.from_library(library) as engine, tempfile.TemporaryDirectory() as place:
        for trial in battery:
            begun = time.monotonic()
            engine.reset()
            trial.check(CountsFromStart(engine))
            print(f"  {trial.name}, {time.monotonic() - begun:.0f} s", flush=True)
        path = Path(place) / "coverage.dat"
        engine.write_coverage(path)
        counts = read_points(path)
    # The lines are those of the text that Verilator was given.
    return Report(loops_for_initial_values(verilog), counts)


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit status says whether the share of lines is as wanted."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--bus-bits", type=int, nargs="+", default=[512, 32])
    parser.add_argument("--quick", action="store_true", help="only the checks of a small sample")
    parser.add_argument("-o", "--output", type=Path, default=BUILD_FOLDER / "coverage")
    options = parser.parse_args(arguments)
    enough = True
    for bus_bits in options.bus_bits:
        report = measure(bus_bits, options.quick)
        report.write(options.output / str(bus_bits))
        lines = report.total("lines")
        enough = enough and lines.met >= WANTED * lines.all
        print(f"\n{report.table()}\n\n{options.output / str(bus_bits)}\n", flush=True)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
