"""Checks of counters in steps of every size, the largest too: several events in the same cycle."""

import random

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import paces, perform

__all__ = ["check_steps", "check_together"]

MOST = 2**31 - 1
WORDS_OF_BEAT = 16
"""Of the widest bus: so many sums may overflow in one cycle."""


def check_steps(engine: VerilatedEngine, build: Build) -> None:
    """Of the elements of each beat none to all overflow; frames carry no block to all of them.

    A count that is cut to too few bits is wrong where all flags of a beat are set, and only there.
    """
    director = Director(**build)
    job = Job(workers=2, lanes=build["lanes"], slots=1)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        for step in range(WORDS_OF_BEAT + 1):
            lanes = range(min(step, job.lanes)) if step < WORDS_OF_BEAT else range(job.lanes)
            grown = [int(n % WORDS_OF_BEAT < step) for n in range(64)]
            for worker, block in enumerate(([MOST] * 64, grown)):
                yield from director.each([job.data(worker, 0, step, dict.fromkeys(lanes, block))])
            counters = yield from director.check_counters()
        # Every element of every lane, in the last of them.
        assert counters["overflows"] >= 64 * job.lanes

    perform(engine, scenario())


def check_together(engine: VerilatedEngine, build: Build, spells: int = 12) -> None:
    """Play frames of one to three beats that all end in something, in every order and distance.

    A completed round, a replay, an answer, a refusal and a frame of nobody meet in every stage, at
    a network that takes all, some, or nothing for a while. All is counted, no result is lost.
    """
    choose = random.Random(31)
    director = Director(**build)
    # One completes a round with each frame; of the other two workers send.
    alone = Job(number=0, workers=1, lanes=1, slots=2)
    both = Job(number=1, workers=2, lanes=1, slots=2, slot_base=2)
    steps = {alone.number: [0] * alone.slots, both.number: [0] * both.slots}

    def draw(first: bool) -> list[bytes]:
        frames = []
        for job in (alone, both):
            for slot in range(job.slots):
                step = steps[job.number][slot]
                steps[job.number][slot] += 1
                frames += [job.data(worker, slot, step) for worker in range(job.workers)]
                if not first:
                    again = job.data(0, slot, step - 1)
                    frames += [again] * choose.randrange(3)
                    frames += [job.probe(0, slot, step - 1)] * choose.randrange(2)
        frame = both.data(0, 0, 0)
        # Of one beat to three: of nobody, of another version, and too long.
        frames += [frame[: choose.randrange(1, 65)] for _ in range(choose.randrange(9))]
        frames += [b"\xff" * 12 + frame[12:]] * choose.randrange(4)
        frames += [frame + bytes(64)] * choose.randrange(3)
        frames += [both.join(1, key=7)] * choose.randrange(3)
        choose.shuffle(frames)
        return frames

    def scenario() -> Actions[None]:
        yield from director.configure()
        for job in (alone, both):
            yield from director.create(job)
        for spell in range(spells):
            yield from director.flood(draw(spell == 0))
            yield from director.check_counters()

    share = (1.0, 0.5, 0.15)
    for number in range(3):
        director = Director(**build)
        steps = {job.number: [0] * job.slots for job in (alone, both)}
        engine.reset()
        perform(engine, scenario(), paces(share[number], 0.0, 7 + number))
    assert engine.statistics().receive_stalls == 0
