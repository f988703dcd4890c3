"""`python -m tests.second_simulator`: the smoke battery on CXXRTL and on Verilator, side by side.

Every answer, and every output pin in every cycle, must be the same. Then the same on a design that
differs, which must be found. Ends with status 1 at a difference, or without one where there is one.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

from afflux_hdl.engine import lane_alu, slot_words
from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.node_battery import node_battery
from tests.checks.node_checks import node_parameters
from tests.mutation.battery import full_battery, short_battery
from tests.second_simulator.library import engine_library, node_library
from tests.second_simulator.twins import Difference, TwinNodes, Twins
from tests.support.planting import names_with


def say(text: str) -> None:
    """Print at once, so that a run can be watched."""
    print(text, flush=True)


def compare_engines(bus_bits: int, whole: bool) -> None:
    """Run the battery on both. Raises `Difference`."""
    battery = full_battery(bus_bits) if whole else short_battery(bus_bits)
    library = engine_library(Parameters(bus_bits=bus_bits, **BUILDS[bus_bits]), fast=True)
    for trial in battery:
        if trial.timed:
            continue
        begun = time.monotonic()
        with open_engine(bus_bits) as one, VerilatedEngine.from_library(library) as other:
            twins = Twins(one, other)
            trial.check(twins)
            say(
                f"  {trial.name}: {twins.calls} calls, {one.cycles} cycles, no difference, "
                f"{time.monotonic() - begun:.0f} s"
            )


def compare_nodes(bus_bits: int) -> None:
    """Run the checks of a node on both. Raises `Difference`."""
    parameters = node_parameters(bus_bits)
    library = node_library(parameters, fast=True)
    for name, check in node_battery(parameters).items():
        begun = time.monotonic()
        with VerilatedNode(parameters) as one, VerilatedNode.from_library(library) as other:
            twins = TwinNodes(one, other)
            check(twins)  # type: ignore[arg-type]
            say(
                f"  {name}: {twins.calls} calls, {one.statistics().cycles} cycles, no difference, "
                f"{time.monotonic() - begun:.0f} s"
            )


def find_a_bug(bus_bits: int) -> None:
    """Compare the engine with one that adds one too much; raise if no difference is found."""
    names = names_with(lane_alu, "held + arriving", "held + arriving + 1")
    with patch.object(slot_words, "LaneAlu", names["LaneAlu"]):
        library = engine_library(Parameters(bus_bits=bus_bits, **BUILDS[bus_bits]))
    try:
        with open_engine(bus_bits) as one, VerilatedEngine.from_library(library) as other:
            short_battery(bus_bits)[0].check(Twins(one, other))
    except Difference as found:
        say(f"  a planted bug is found: {str(found)[:120]}")
        return
    raise AssertionError("an engine with a bug was not found to differ")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.second_simulator", description=__doc__)
    parser.add_argument("--bus-bits", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--all", action="store_true", help="all checks that mutants are judged by")
    parser.add_argument("--only", choices=("engine", "node"))
    options = parser.parse_args(arguments)
    steps: list[tuple[str, Callable[[], None]]] = []
    for bits in options.bus_bits:
        if options.only != "node":
            steps.append((f"engine, {bits} bits", partial(compare_engines, bits, options.all)))
        if options.only != "engine":
            steps.append((f"node, {bits} bits", partial(compare_nodes, bits)))
    if options.only != "node":
        steps.append(("engine with a bug", partial(find_a_bug, options.bus_bits[0])))
    for name, step in steps:
        say(name)
        try:
            step()
        except AssertionError as error:
            say(f"FAILED: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
