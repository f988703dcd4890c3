"""Frames that wait in the queue of results, and the ports of a parent: gaps that mutants showed."""

import pytest

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import MOSTLY_32, WIDTHS
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
from tests.scenarios.director import Build


@WIDTHS
def test_a_result_that_is_queued_for_all_is_not_queued_again_for_one(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_queued_once(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_results_whose_job_has_gone_are_not_sent(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_results_of_no_job(engine, BUILDS[bus_bits])


@WIDTHS
def test_what_is_asked_for_again_and_discarded_is_counted(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_discarded_replays(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_results_that_a_job_leaves_are_counted(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_emptied(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_no_ring_reaches_into_its_neighbour(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_neighbouring_rings(engine, BUILDS[bus_bits])


@pytest.mark.long
def test_fewer_slots_than_what_is_asked_for_again() -> None:
    """Eight of one slot were counted as none by an engine of two slots."""
    build: Build = {"workers": 2, "lanes": 1, "jobs": 1, "slots": 2}
    with VerilatedEngine(bus_bits=32, **build) as engine:
        check_discarded_replays(engine, build)


@WIDTHS
def test_answers_behind_what_control_has_ordered_are_sent(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_answers_behind_orders(engine, BUILDS[bus_bits])


@WIDTHS
def test_commands_for_a_job_do_not_wait_for_others(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_fences_by_job(engine, BUILDS[bus_bits])


@WIDTHS
def test_workers_that_go_on_without_a_result_lose_it(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_gone_on(engine, BUILDS[bus_bits])


@WIDTHS
def test_a_job_leaves_the_others_their_replays(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_shares(engine, BUILDS[bus_bits])


@WIDTHS
def test_every_bit_of_a_port_counts(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_ports(engine, BUILDS[bus_bits])
