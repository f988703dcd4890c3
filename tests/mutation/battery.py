"""The checks that mutants are judged by, those first that notice most in the least time.

All of them are checks of the test suite, on an engine that is built for little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks import engine_checks as checks
from tests.checks.burst_checks import check_bursts
from tests.checks.command_checks import (
    check_busy_writes,
    check_joined_before,
    check_reasons,
    check_settled_workers,
    check_unasked_fields,
    check_uncommanded_writes,
)
from tests.checks.control_checks import (
    check_addresses,
    check_behind_a_join,
    check_commands,
    check_last_busy_cycle,
    check_own_addresses,
    check_registers,
    check_reset,
    check_reset_with_full_queues,
    check_stuck_results,
)
from tests.checks.debug_checks import check_constants, check_debug, check_levels, check_peaks
from tests.checks.egress_checks import check_order
from tests.checks.engine_checks import BUILDS
from tests.checks.flood_checks import check_mixed_flood, check_refusals
from tests.checks.limit_checks import (
    check_all_workers,
    check_lanes,
    check_neighbours,
    check_sizes,
)
from tests.checks.link_checks import (
    check_commands_while_the_link_is_down,
    check_discards_for_a_moment,
    check_operator_discards,
    check_reset_amid_frames,
    check_reset_ends_the_frame,
)
from tests.checks.merge_checks import check_near_numbers, check_what_is_agreed, check_zeros
from tests.checks.near_checks import misjudged
from tests.checks.network_port_checks import (
    check_answers_by_port,
    check_moved_workers,
    check_ports_are_forgotten,
    check_ports_of_bursts,
    check_refusals_by_port,
)
from tests.checks.node_battery import node_battery
from tests.checks.node_checks import NodeAsEngine, build_of, node_parameters
from tests.checks.node_link_checks import check_link_down, check_resets_amid_frames
from tests.checks.pace_checks import check_idle, check_pace
from tests.checks.port_checks import check_ports
from tests.checks.queue_checks import (
    check_answers_behind_orders,
    check_fences_by_job,
    check_gone_on,
    check_queued_once,
    check_results_of_no_job,
    check_shares,
)
from tests.checks.ring_checks import (
    check_discarded_replays,
    check_emptied,
    check_neighbouring_rings,
)
from tests.checks.source_checks import check_no_address, check_sources
from tests.checks.step_checks import check_steps, check_together
from tests.checks.sum_checks import check_sums
from tests.checks.timer_checks import (
    check_access_times,
    check_answer_rates,
    check_link_timeout,
    check_node_link_timeout,
    check_refusal_rate,
    check_reset_at_rest,
)
from tests.checks.turn_checks import check_turns
from tests.fuzz.fuzzer import Fuzzer
from tests.mutation.flip_checks import check_flips
from tests.mutation.mutants import Mutant
from tests.mutation.partial_sum_checks import check_partial_sums
from tests.mutation.transcript import Check
from tests.scenarios.director import Build
from tests.scenarios.job_frames import Job
from tests.support.ported.ported_engine import PORTS

__all__ = [
    "Trial",
    "battery_of_node",
    "battery_of_options",
    "full_battery",
    "option_parameters",
    "parameters",
    "short_battery",
]


@dataclass(frozen=True)
class Trial:
    """One check.

    Attributes:
        name: As it stands in the report.
        check: Raises if the engine it is given does wrong.
        exact: Every answer is determined: what differs from the engine's is wrong. Else the check
            has to say.
        timed: Looks at cycles, which a transcript does not hold.
    """

    name: str
    check: Check
    exact: bool = False
    timed: bool = False


def parameters(bus_bits: int) -> Parameters:
    """Of the mutated engine: as the tests have it."""
    return Parameters(bus_bits=bus_bits, **BUILDS[bus_bits])


def option_parameters(bus_bits: int) -> Parameters:
    """Of the engine with all options of which their own logic is mutated."""
    return replace(parameters(bus_bits), ports=PORTS, ram_output_register=1)


def _fuzz(engine: VerilatedEngine, build: Build) -> None:
    Fuzzer(engine, seed=1, batch=500, build=build).run(6000)


def _near_misses(engine: VerilatedEngine, build: Build) -> None:
    assert not list(misjudged(engine, build))


def _within(node: VerilatedNode, check: Callable[..., object], build: Build) -> None:
    check(NodeAsEngine(node), build=build)


def battery_of_node(bus_bits: int) -> list[Trial]:
    """Return all checks of a node."""
    built = node_parameters(bus_bits)
    within: dict[str, Callable[..., object]] = {
        "sources": check_sources,
        "uncommanded writes": check_uncommanded_writes,
        "unasked fields": check_unasked_fields,
        "settled workers": check_settled_workers,
        "reasons": partial(check_reasons, creates=120),
    }
    link = {"link down": check_link_down, "resets amid frames": check_resets_amid_frames}
    return [
        *(Trial(name, check) for name, check in node_battery(built).items()),
        *(Trial(name, partial(check, built=built)) for name, check in link.items()),
        *(
            Trial(name, partial(_within, check=check, build=build_of(built)), exact=True)
            for name, check in within.items()
        ),
        Trial("order", partial(check_order, built=built), exact=True),
        Trial("access times", check_access_times, timed=True),
        Trial("reset at rest", partial(check_reset_at_rest, built=built), timed=True),
        Trial("answer rates", partial(check_answer_rates, built=built)),
        Trial("node's link timeout", partial(check_node_link_timeout, built=built)),
    ]


def battery_of_options(bus_bits: int, flips: Sequence[Mutant] = ()) -> list[Trial]:
    """Return all checks of an engine with options; those of its ports come first.

    Its network ports are looked at by the others as well (`tests.support.ported.ported_engine`).
    """
    build = BUILDS[bus_bits]
    return [
        Trial("forgotten ports", partial(check_ports_are_forgotten, build=build), exact=True),
        Trial("moved workers", partial(check_moved_workers, build=build), exact=True),
        Trial("refusals by port", partial(check_refusals_by_port, build=build), exact=True),
        Trial("ports of bursts", partial(check_ports_of_bursts, build=build)),
        Trial("answers by port", partial(check_answers_by_port, build=build), exact=True),
        *full_battery(bus_bits, flips, later=1),
    ]


def short_battery(bus_bits: int) -> list[Trial]:
    """Return what takes a few seconds to record and notices nearly all."""
    build = BUILDS[bus_bits]
    job = Job(number=1, workers=3, lanes=2, slots=2, slot_base=3)
    return [
        Trial("cases", partial(checks.check_cases, build=build, job=job), exact=True),
        Trial(
            "cases of trees",
            partial(checks.check_cases, build=build, job=job, cases="tree"),
            exact=True,
        ),
        Trial("registers", check_registers, exact=True),
        Trial("sums", partial(check_sums, bus_bits=bus_bits)),
        Trial("partial sums", partial(check_partial_sums, build=build), exact=True),
        Trial(
            "any frame",
            partial(checks.check_any_frame, build=build, seed=1, renewals=3, frames=250),
            exact=True,
        ),
        Trial("floods", partial(checks.check_floods, build=build, ready_share=0.5, renewals=1)),
        Trial("levels", partial(check_levels, build=build, bus_bits=bus_bits)),
        Trial("own addresses", partial(check_own_addresses, build=build), exact=True),
        Trial("gone on", partial(check_gone_on, build=build)),
        Trial("reasons", partial(check_reasons, build=build, creates=120)),
        Trial("settled workers", partial(check_settled_workers, build=build)),
        Trial("operator discards", partial(check_operator_discards, build=build)),
        Trial("shares", partial(check_shares, build=build), exact=True),
    ]


def full_battery(bus_bits: int, flips: Sequence[Mutant] = (), later: int = 0) -> list[Trial]:
    """Return all checks.

    Args:
        bus_bits: Width of the engine.
        flips: The bits that it can flip, if it can.
        later: Cycles by which results are later: 1 with an output register of the slot memory.
    """
    build = BUILDS[bus_bits]
    many_workers = Job(number=2, workers=min(17, build["workers"]), slots=1, slot_base=4)
    all_lanes = Job(number=1, workers=2, lanes=build["lanes"], slots=1, slot_base=6)
    one_lane = Job(number=0, workers=2, lanes=1, slots=1, slot_base=7, credit=65535)
    stream = Job(number=2, workers=2, lanes=3, slots=2, slot_base=5)
    cases = partial(checks.check_cases, build=build)
    streams = partial(checks.check_streams, build=build, job=stream)
    flipping = partial(check_flips, build=build, bus_bits=bus_bits)
    return [
        *short_battery(bus_bits),
        Trial("constants", partial(check_constants, build=build, bus_bits=bus_bits), exact=True),
        Trial("debug registers", partial(check_debug, build=build), exact=True),
        Trial("fuzz", partial(_fuzz, build=build)),
        Trial("peaks", partial(check_peaks, build=build, bus_bits=bus_bits), exact=True),
        Trial("bounds", partial(checks.check_bounds, build=build), exact=True),
        Trial("garbage", partial(checks.check_garbage, build=build)),
        Trial("commands", partial(check_commands, build=build), exact=True),
        Trial("last busy cycle", partial(check_last_busy_cycle, build=build), exact=True),
        Trial("checksums", partial(checks.check_checksums, build=build, step=61), exact=True),
        Trial("reset", partial(check_reset, build=build)),
        Trial("pace", partial(check_pace, build=build, bus_bits=bus_bits, later=later), timed=True),
        Trial("idle", partial(check_idle, build=build, bus_bits=bus_bits, later=later), timed=True),
        Trial("stuck results", partial(check_stuck_results, build=build)),
        Trial("queued once", partial(check_queued_once, build=build), exact=True),
        Trial("fences by job", partial(check_fences_by_job, build=build)),
        Trial("busy writes", partial(check_busy_writes, build=build)),
        Trial("joined before", partial(check_joined_before, build=build)),
        Trial("refusals", partial(check_refusals, build=build)),
        Trial("reset amid frames", partial(check_reset_amid_frames, build=build)),
        Trial("reset with full queues", partial(check_reset_with_full_queues, build=build)),
        Trial("discarded replays", partial(check_discarded_replays, build=build)),
        Trial("emptied", partial(check_emptied, build=build)),
        Trial("rings", partial(check_neighbouring_rings, build=build)),
        Trial("answers behind orders", partial(check_answers_behind_orders, build=build)),
        Trial("results of no job", partial(check_results_of_no_job, build=build)),
        Trial("addresses", partial(check_addresses, build=build), exact=True),
        Trial("near numbers", partial(check_near_numbers, build=build), exact=True),
        Trial("zeros", partial(check_zeros, build=build), exact=True),
        Trial("agreed", partial(check_what_is_agreed, build=build), exact=True),
        Trial("all workers", partial(check_all_workers, build=build), exact=True),
        Trial("sizes", partial(check_sizes, build=build)),
        Trial("lanes", partial(check_lanes, build=build), exact=True),
        Trial("neighbours", partial(check_neighbours, build=build), exact=True),
        Trial("ports", partial(check_ports, build=build), exact=True),
        Trial("steps", partial(check_steps, build=build), exact=True),
        Trial("together", partial(check_together, build=build)),
        Trial("bursts", partial(check_bursts, build=build)),
        Trial("uncommanded writes", partial(check_uncommanded_writes, build=build), exact=True),
        Trial("turns", partial(check_turns, build=build), exact=True),
        Trial("unasked fields", partial(check_unasked_fields, build=build), exact=True),
        Trial("sources", partial(check_sources, build=build), exact=True),
        Trial("no address", partial(check_no_address, build=build), exact=True),
        Trial("near misses", partial(_near_misses, build=build), exact=True),
        Trial("link timeout", partial(check_link_timeout, build=build)),
        Trial("refusal rate", partial(check_refusal_rate, build=build)),
        Trial("discards for a moment", partial(check_discards_for_a_moment, build=build)),
        Trial("link down", partial(check_commands_while_the_link_is_down, build=build)),
        Trial("reset ends the frame", partial(check_reset_ends_the_frame, build=build)),
        Trial("mixed flood", partial(check_mixed_flood, build=build, bus_bits=bus_bits, seed=5)),
        Trial("after a join", partial(check_behind_a_join, build=build), exact=True),
        *([Trial("flips", partial(flipping, flips=flips))] if flips else []),
        Trial("never waits", partial(checks.check_never_waits, build=build)),
        Trial("cases, one lane", partial(cases, job=one_lane), exact=True),
        Trial("cases, all lanes", partial(cases, job=all_lanes), exact=True),
        Trial("cases, many workers", partial(cases, job=many_workers), exact=True),
        Trial("cases of trees, many", partial(cases, job=many_workers, cases="tree"), exact=True),
        Trial("streams", partial(streams, unkind=False)),
        Trial("streams, unkind", partial(streams, unkind=True, ready_share=0.5)),
        Trial("floods, free", partial(checks.check_floods, build=build, ready_share=1.0, seed=8)),
        Trial(
            "any frame, longer", partial(checks.check_any_frame, build=build, seed=2), exact=True
        ),
    ]
