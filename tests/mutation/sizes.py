"""The subject `sizes`: mutants of indices in engines of shipped sizes, and the checks of these."""

from collections.abc import Callable
from functools import partial

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.command_checks import check_reasons
from tests.checks.edge_checks import (
    check_all_jobs,
    check_all_parents,
    check_all_slots,
    check_workers_of_all_jobs,
)
from tests.checks.engine_checks import check_bounds, check_floods
from tests.checks.turn_checks import check_turns
from tests.mutation.battery import Trial
from tests.mutation.index_bits import address_bits, index_places
from tests.mutation.mutants import Mutant, Netlist
from tests.scenarios.shipped_builds import SHIPPED, build_of

__all__ = ["battery_of_sizes", "draw_indices", "shipped_parameters"]

_NAMES = {512: "default", 32: "ecpix5-85f"}


def shipped_parameters(bus_bits: int) -> Parameters:
    """Return what the largest engine of a width is built for, of those that are shipped."""
    return SHIPPED[_NAMES[bus_bits]]


def draw_indices(netlist: Netlist, text: str, count: int, seed: int) -> list[Mutant]:
    """Return mutants of index bits, and of every memory without each bit of its address.

    Args:
        netlist: Of the engine.
        text: The same as RTLIL.
        count: Of index bits, about so many are drawn.
        seed: Of the draw.
    """
    mutants = netlist.draw_at(index_places(text, seed), count, seed)
    for place in address_bits(text):
        mutants.append(netlist.aliased(len(mutants) + 1, *place))
    return mutants


def battery_of_sizes(parameters: Parameters) -> list[Trial]:
    """Return the checks that fill an engine of any size, those that take least first."""
    build = build_of(parameters)
    every: dict[str, Callable[[VerilatedEngine], object]] = {
        "all parents": partial(check_all_parents, build=build),
        "workers of all jobs": partial(check_workers_of_all_jobs, build=build),
        "all jobs": partial(check_all_jobs, build=build),
        "all slots": partial(check_all_slots, build=build),
        "reasons": partial(check_reasons, build=build, creates=200),
        "bounds": partial(check_bounds, build=build),
        "turns": partial(check_turns, build=build),
        "floods": partial(check_floods, build=build, ready_share=0.5, renewals=1),
    }
    return [Trial(name, check) for name, check in every.items()]
