"""An operator's access to the engine's RTL: registers, job commands, reset."""

from tests.checks.command_checks import (
    check_busy_writes,
    check_joined_before,
    check_reasons,
    check_settled_workers,
)
from tests.checks.control_checks import (
    check_addresses,
    check_commands,
    check_last_busy_cycle,
    check_own_addresses,
    check_registers,
    check_reset,
    check_reset_with_full_queues,
)
from tests.checks.debug_checks import check_constants, check_debug, check_levels, check_peaks
from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import MOSTLY_32, WIDTHS
from tests.checks.pace_checks import check_idle, check_pace


@WIDTHS
def test_registers(bus_bits: int) -> None:
    """Each register that can be written holds its own bits and no other's."""
    with open_engine(bus_bits) as engine:
        check_registers(engine)


@MOSTLY_32
def test_commands(bus_bits: int) -> None:
    """Creates at and beyond every limit; commands for no job; commands while one is busy."""
    with open_engine(bus_bits) as engine:
        check_commands(engine, BUILDS[bus_bits])


@WIDTHS
def test_a_command_in_the_last_busy_cycle_is_not_done(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_last_busy_cycle(engine, BUILDS[bus_bits])


@WIDTHS
def test_writes_while_a_command_runs_are_refused(bus_bits: int) -> None:
    """Every parameter in every cycle of a create has no effect, and is said to have none."""
    with open_engine(bus_bits) as engine:
        check_busy_writes(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_reasons(bus_bits: int) -> None:
    """Creates beyond every limit and in one another's way, as the golden model judges them."""
    with open_engine(bus_bits) as engine:
        check_reasons(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_a_run_has_not_joined_its_parent_because_the_one_before_had(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_joined_before(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_workers_of_a_running_job_stay(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_settled_workers(engine, BUILDS[bus_bits])


@WIDTHS
def test_addresses(bus_bits: int) -> None:
    """Any address but 0.0.0.0 is a parent, any multicast address a group."""
    with open_engine(bus_bits) as engine:
        check_addresses(engine, BUILDS[bus_bits])


@WIDTHS
def test_own_addresses(bus_bits: int) -> None:
    """Engines of random addresses: what they take for theirs, and what they send from there."""
    with open_engine(bus_bits) as engine:
        check_own_addresses(engine, BUILDS[bus_bits])


@WIDTHS
def test_reset(bus_bits: int) -> None:
    """A reset in the middle of everything leaves an engine like a new one."""
    with open_engine(bus_bits) as engine:
        check_reset(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_reset_with_full_queues(bus_bits: int) -> None:
    """A reset with anything queued, at any moment, costs no slot."""
    with open_engine(bus_bits) as engine:
        check_reset_with_full_queues(engine, BUILDS[bus_bits])


@WIDTHS
def test_constants(bus_bits: int) -> None:
    """The engine says what it is and what it was built for."""
    with open_engine(bus_bits) as engine:
        check_constants(engine, BUILDS[bus_bits], bus_bits)


@MOSTLY_32
def test_debug_registers(bus_bits: int) -> None:
    """Every slot and every worker of random jobs, in the middle of their rounds."""
    with open_engine(bus_bits) as engine:
        check_debug(engine, BUILDS[bus_bits])


@WIDTHS
def test_levels(bus_bits: int) -> None:
    """Queues are as full as what was put into them, and peaks stay."""
    with open_engine(bus_bits) as engine:
        check_levels(engine, BUILDS[bus_bits], bus_bits)


@WIDTHS
def test_peaks(bus_bits: int) -> None:
    """A frame of any number of blocks is all in the receive buffer before it is merged."""
    with open_engine(bus_bits) as engine:
        check_peaks(engine, BUILDS[bus_bits], bus_bits)


@WIDTHS
def test_pace(bus_bits: int) -> None:
    """The latency of a result of every size, at both phases, and no gap in it."""
    with open_engine(bus_bits) as engine:
        check_pace(engine, BUILDS[bus_bits], bus_bits)


@WIDTHS
def test_idle(bus_bits: int) -> None:
    """Not before a contribution's blocks are written."""
    with open_engine(bus_bits) as engine:
        check_idle(engine, BUILDS[bus_bits], bus_bits)
