"""Volume: thousands of frames of every kind through the RTL and the golden model, bit for bit."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from tests.cocotb.director import Actions, Director
from tests.cocotb.performer import paces, perform
from tests.cocotb.schedules import Schedule, play_schedule, schedules
from tests.sim.random_frames import RandomFrames
from tests.sim.random_jobs import renew_jobs

from afflux_sim.verilated import VerilatedEngine

# By width of the bus. The narrow one is built for little, so that its maxima are met too.
BUILDS = {
    512: {"workers": 64, "lanes": 16, "jobs": 4, "slots": 16},
    32: {"workers": 5, "lanes": 3, "jobs": 3, "slots": 8},
}
WIDTHS = pytest.mark.parametrize("bus_bits", list(BUILDS))


def open_engine(bus_bits: int) -> VerilatedEngine:
    return VerilatedEngine(bus_bits=bus_bits, **BUILDS[bus_bits])


@WIDTHS
@pytest.mark.parametrize("seed", range(3))
def test_any_frame(bus_bits: int, seed: int) -> None:
    """Frame by frame, several jobs at once: the same frames in the same order, and all counters."""
    choose = random.Random(seed)
    build = BUILDS[bus_bits]
    director = Director(**build)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        for _ in range(4):
            jobs = yield from renew_jobs(director, build, choose)
            frames = RandomFrames(choose, director.golden, jobs)
            for _ in range(250):
                yield from director.each([frames.any()], mac_error=choose.random() < 0.02)
            yield from director.check_counters()
        return (yield from director.check_counters())

    with open_engine(bus_bits) as engine:
        counters = perform(engine, scenario(), paces(0.8, 0.1, seed))
        assert engine.statistics().receive_stalls == 0
    assert director.left_out == 0
    # The frames were of every kind: each cause was met.
    never = {name for name, count in counters.items() if count == 0}
    assert never <= {"receive_overflow", "replays_dropped", "replies_dropped"}


@WIDTHS
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=schedules())
def test_schedules(bus_bits: int, schedule: Schedule) -> None:
    """Each schedule on a fresh engine, so that hypothesis can shrink what fails."""
    build = {"workers": 64, "lanes": 16, "jobs": 4, "slots": 16}
    director = Director(**build)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from play_schedule(director, schedule)
        yield from director.check_counters()

    with VerilatedEngine(bus_bits=bus_bits, **build) as engine:
        perform(engine, scenario(), paces(0.8, 0.2, schedule.seed))
