"""The engine's RTL while the network takes nothing, and when a reset cuts frames off."""

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import MOSTLY_32, WIDTHS
from tests.checks.link_checks import (
    check_commands_while_the_link_is_down,
    check_discards_for_a_moment,
    check_operator_discards,
    check_reset_amid_frames,
    check_reset_ends_the_frame,
)


@WIDTHS
def test_the_operator_has_output_discarded(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_operator_discards(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_output_is_discarded_for_a_moment(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_discards_for_a_moment(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_jobs_are_created_and_destroyed_while_the_link_is_down(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_commands_while_the_link_is_down(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_a_frame_that_a_reset_cuts_off_is_ended(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_reset_ends_the_frame(engine, BUILDS[bus_bits])


@WIDTHS
def test_the_tail_of_a_frame_is_no_frame(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_reset_amid_frames(engine, BUILDS[bus_bits])
