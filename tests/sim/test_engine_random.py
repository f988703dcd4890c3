"""Volume: thousands of frames of every kind through the RTL and the golden model, bit for bit."""

import pytest
from hypothesis import HealthCheck, given, settings

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS, DROPS, check_any_frame, check_checksums, open_engine
from tests.scenarios.director import LARGE, Actions, Director
from tests.scenarios.performer import paces, perform
from tests.scenarios.schedules import Schedule, play_schedule, schedules


@pytest.mark.parametrize(
    ("seed", "bus_bits"), [(1, 32), (2, 512), pytest.param(0, 512, marks=pytest.mark.long)]
)
def test_any_frame(bus_bits: int, seed: int) -> None:
    """Frame by frame, several jobs at once: the same frames in the same order, and all counters."""
    with open_engine(bus_bits) as engine:
        counters = check_any_frame(engine, BUILDS[bus_bits], seed)
    # The frames were of every kind: each cause was met.
    never = {name for name, count in counters.items() if count == 0}
    assert never <= DROPS


@pytest.mark.parametrize(
    ("bus_bits", "step"), [(32, 61), (512, 13), pytest.param(512, 1, marks=pytest.mark.long)]
)
def test_checksums(bus_bits: int, step: int) -> None:
    """Of all values of the IPv4 and of the UDP checksum one is right, and 0 says none for UDP.

    Of all, or of one in `step` values besides those that differ in two bits.
    """
    with open_engine(bus_bits) as engine:
        check_checksums(engine, BUILDS[bus_bits], step)


@pytest.mark.parametrize(
    ("bus_bits", "examples"),
    [(32, 25), *(pytest.param(bits, 60, marks=pytest.mark.long) for bits in (32, 512))],
)
def test_schedules(bus_bits: int, examples: int) -> None:
    """Each schedule on a fresh engine, so that hypothesis can shrink what fails."""

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(schedule=schedules())
    def check(schedule: Schedule) -> None:
        play(bus_bits, schedule)

    check()


def play(bus_bits: int, schedule: Schedule) -> None:
    director = Director(**LARGE)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from play_schedule(director, schedule)
        yield from director.check_counters()

    with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
        perform(engine, scenario(), paces(0.8, 0.2, schedule.seed))
