"""`python -m tests.fuzz`: random and mutated frames, as many as wanted, on simulated gateware.

`batches` plays frames into an engine that comes to rest in between, `storm` everything that an
engine may meet together, and `node` a storm around a node. Ends with status 1 at the first thing
that is wrong; the same seed brings it about again.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.fuzz import node_storm, storm
from tests.fuzz.fuzzer import BUILD, Fuzzer
from tests.fuzz.node_storm import NodeStorm
from tests.fuzz.storm import Storm

STEP = 50_000
"""Frames after which there is a sign of life."""


def say(text: str) -> None:
    """Print at once, so that a run can be watched."""
    print(text, flush=True)


def in_steps(frames: int, run: Callable[[int], Any]) -> Any:
    """Run up to so many frames; return what the last call returns."""
    begun = time.monotonic()
    for done in range(STEP, frames, STEP):
        run(done)
        say(f"  {done} frames, {time.monotonic() - begun:.0f} s")
    report = run(frames)
    say(f"  {frames / (time.monotonic() - begun):,.0f} frames/s")
    return report


def show(counts: Iterable[tuple[str, int]]) -> None:
    """Print a table of counts."""
    for name, count in counts:
        say(f"  {name:<32}{count:>12}")


def run_batches(bus_bits: int, seed: int, frames: int) -> None:
    """Play batches, with rests between them."""
    with VerilatedEngine(bus_bits=bus_bits, **BUILD) as engine:
        report = in_steps(frames, Fuzzer(engine, seed).run)
    say(
        f"  {report.frames} frames in, {report.answers} out, {report.left_out} left out; "
        f"the orderly job got {report.results} results"
    )
    show(report.counters.items())


def run_storm(bus_bits: int, seed: int, frames: int) -> None:
    """Play everything together, to an engine whose link is soon down."""
    with VerilatedEngine(bus_bits=bus_bits, link_timeout=storm.LINK_TIMEOUT, **BUILD) as engine:
        report = in_steps(frames, Storm(engine, seed).storm)
    say(f"  {report.frames} frames in, {report.answers} out")
    show(sorted(report.events.items()))


def run_node(bus_bits: int, seed: int, frames: int) -> None:
    """Run the same around a node, with small buffers."""
    parameters = Parameters(bus_bits=bus_bits, link_timeout=node_storm.LINK_TIMEOUT, **BUILD)
    built = NodeParameters(engine=parameters, host_buffer_bytes=2048, echo_buffer_bytes=2048)
    with VerilatedNode(built) as node:
        report = in_steps(frames, NodeStorm(node, built, seed).storm)
    say(f"  {report.frames} frames of the storm in, {report.answers} out")
    show(sorted(report.events.items()))


KINDS = {"batches": run_batches, "storm": run_storm, "node": run_node}


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bus-bits", type=int, nargs="+", default=[512, 32])
    parser.add_argument("--only", choices=KINDS, nargs="+", default=[*KINDS])
    options = parser.parse_args(arguments)
    share = options.frames // (len(options.bus_bits) * len(options.only))
    for name in options.only:
        for bus_bits in options.bus_bits:
            say(f"{name}, {bus_bits} bits, seed {options.seed}, {share} frames")
            try:
                KINDS[name](bus_bits, options.seed, share)
            except (AssertionError, SimulationError) as error:
                say(f"FAILED: {error}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
