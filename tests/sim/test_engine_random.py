"""Volume: thousands of frames of every kind through the RTL and the golden model, bit for bit."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from tests.cocotb.director import Actions, Director
from tests.cocotb.job_frames import Job
from tests.cocotb.performer import paces, perform
from tests.cocotb.schedules import Schedule, play_schedule, schedules
from tests.sim.random_frames import RandomFrames

from afflux_sim.verilated import VerilatedEngine

# By width of the bus. The narrow one is built for little, so that its maxima are met too.
BUILDS = {
    512: {"workers": 64, "lanes": 16, "jobs": 4, "slots": 16},
    32: {"workers": 5, "lanes": 3, "jobs": 3, "slots": 8},
}
WIDTHS = pytest.mark.parametrize("bus_bits", list(BUILDS))


def open_engine(bus_bits: int) -> VerilatedEngine:
    return VerilatedEngine(bus_bits=bus_bits, **BUILDS[bus_bits])


def draw_job(number: int, build: dict[str, int], choose: random.Random) -> Job:
    # Each job has a part of the pool to itself.
    share = build["slots"] // build["jobs"]
    slots = choose.randint(1, share)
    return Job(
        number=number,
        workers=choose.choice([1, 2, 3, 5]),
        lanes=choose.randint(1, build["lanes"]),
        slots=slots,
        slot_base=number * share + choose.randint(0, share - slots),
        first_round=choose.choice([0, 1, 2**31, 2**32 - 1, choose.getrandbits(32)]),
        key=choose.getrandbits(64),
        credit=choose.getrandbits(16),
        one_host=choose.random() < 0.3,
    )


def renew_jobs(director: Director, build: dict[str, int], choose: random.Random) -> Actions[list]:
    """Creates every job anew, but for one that stays destroyed."""
    jobs = [draw_job(number, build, choose) for number in range(build["jobs"])]
    for job in jobs:
        yield from director.destroy(job)
    gone = choose.choice(jobs)
    for job in jobs:
        if job is not gone:
            yield from director.create(job)
    return jobs


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
@pytest.mark.parametrize("ready_share", [1.0, 0.5])
def test_floods(bus_bits: int, ready_share: float) -> None:
    """Hundreds of frames back to back: every result arrives, and no frame finds the buffer full."""
    choose = random.Random(7)
    build = BUILDS[bus_bits]
    director = Director(**build)

    def burst(jobs: list[Job], frames: RandomFrames) -> list[bytes]:
        """Whole rounds of all jobs, shuffled, among frames of every other kind."""
        sent = [frames.any() for _ in range(40)]
        sent = [frame for frame in sent if not untimely(frame)]
        for job in jobs:
            if director.golden.jobs[job.number] is None:
                continue
            for slot in range(job.slots):
                state = director.golden.slot(job.number, slot)
                step = (state.round + 1 - job.first_round) % 2**32
                for worker in range(job.workers):
                    blocks = {lane: [worker + lane] * 64 for lane in range(job.lanes)}
                    sent += [job.data(worker, slot, step, blocks)] * choose.choice([1, 1, 1, 2])
        choose.shuffle(sent)
        return sent

    def untimely(frame: bytes) -> bool:
        """Whether it is DATA, which comes in order, below, or JOIN, which may move a worker."""
        return len(frame) > 63 and frame[42] & 15 in (0, 2)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        for _ in range(3):
            jobs = yield from renew_jobs(director, build, choose)
            frames = RandomFrames(choose, director.golden, jobs)
            for _ in range(6):
                yield from director.flood(burst(jobs, frames))
                yield from director.check_counters()
        return (yield from director.check_counters())

    with open_engine(bus_bits) as engine:
        counters = perform(engine, scenario(), paces(ready_share, 0.0, 3))
        assert engine.statistics().receive_stalls == 0
    assert counters["rounds"] > 50
    assert counters["receive_overflow"] == 0


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
