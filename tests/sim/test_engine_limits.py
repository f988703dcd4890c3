"""The engine's RTL at the limits of its build: all workers, all slots."""

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import MOSTLY_32, WIDTHS
from tests.checks.limit_checks import (
    check_all_workers,
    check_lanes,
    check_neighbours,
    check_sizes,
)


@WIDTHS
def test_every_worker_counts_once(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_all_workers(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_frames_of_every_number_of_blocks_and_every_two_lanes(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_lanes(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_a_job_of_any_size_leaves_its_neighbour_alone(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_neighbours(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_jobs_of_every_size(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_sizes(engine, BUILDS[bus_bits])
