"""Jobs that follow one another in the same slots: nothing of one is ever seen by the next."""

import random

import pytest

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.control_checks import check_behind_a_join, check_stuck_results
from tests.scenarios.director import LARGE, Actions, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

WIDTHS = pytest.mark.parametrize("bus_bits", [512, 32])


def draw_blocks(job: Job, choose: random.Random) -> dict[int, list[int]]:
    return {lane: [choose.getrandbits(16) for _ in range(64)] for lane in range(job.lanes)}


@WIDTHS
@pytest.mark.parametrize("workers", [1, 3])
def test_rounds_before_the_first_are_not_answered(bus_bits: int, workers: int) -> None:
    """A slot's data of another job cannot be had by asking for rounds before r₀."""
    choose = random.Random(8)
    old = Job(number=0, workers=workers, lanes=2, slots=2, first_round=6)
    new = Job(number=1, workers=workers, lanes=2, slots=2, first_round=8)
    director = Director(**LARGE)

    def fill(job: Job) -> Actions[None]:
        for step in range(2):
            for worker in range(workers):
                blocks = draw_blocks(job, choose)
                yield from director.each([job.data(worker, 0, step, blocks, [step])])

    def ask(job: Job, steps: tuple[int, ...]) -> Actions[None]:
        for step in steps:
            for worker in range(workers):
                questions = [job.probe(worker, 0, step), job.data(worker, 0, step)]
                assert (yield from director.each(questions)) == []

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(old)
        yield from fill(old)
        yield from director.destroy(old)
        yield from director.create(new)
        yield from ask(new, (-1, -2, -3))
        yield from director.each([new.data(0, 0, 0)])
        yield from ask(new, (-1, -2))
        return (yield from director.check_counters())

    with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
        counters = perform(engine, scenario())
    assert counters["stale"] == 10 * workers


@WIDTHS
def test_create_while_old_results_are_stuck(bus_bits: int) -> None:
    with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
        check_stuck_results(engine, LARGE)


@WIDTHS
def test_a_frame_directly_behind_a_join_is_judged_by_the_new_address(bus_bits: int) -> None:
    with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
        check_behind_a_join(engine, LARGE)
