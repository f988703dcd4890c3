"""Schedules of rounds, drawn by hypothesis: sends and repeats, their times, and losses."""

import random
from dataclasses import dataclass, replace

from hypothesis import strategies

from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job

__all__ = ["Schedule", "Send", "play_schedule", "schedules"]


@dataclass(frozen=True)
class Send:
    """One frame. `behind` says to which round: 0 is the slot's current one, 1 the one before.

    It may also be a round that is not due (negative) or long over.
    """

    worker: int
    slot: int
    behind: int
    probe: bool
    opcode: int
    present: int


@dataclass(frozen=True)
class Schedule:
    """A job and bursts of frames, each played at once, the next when the engine is idle."""

    job: Job
    bursts: list[list[Send]]
    seed: int


@strategies.composite
def schedules(draw: strategies.DrawFn) -> Schedule:
    """Jobs of up to four workers; contributions to the current round are the likeliest."""
    job = Job(
        number=draw(strategies.integers(0, 3)),
        workers=draw(strategies.integers(1, 4)),
        lanes=draw(strategies.integers(1, 3)),
        slots=draw(strategies.integers(1, 2)),
        slot_base=draw(strategies.integers(0, 14)),
        first_round=draw(strategies.sampled_from([0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1])),
    )
    send = strategies.builds(
        Send,
        worker=strategies.integers(0, job.workers - 1),
        slot=strategies.integers(0, job.slots - 1),
        behind=strategies.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 2, 3, -1, -2, 2**31, -(2**31) + 1]),
        probe=strategies.sampled_from([False, False, False, True]),
        opcode=strategies.sampled_from([0, 0, 0, 0, 1, 2, 3]),
        present=strategies.integers(0, 2**job.lanes - 1),
    )
    bursts = draw(
        strategies.lists(strategies.lists(send, min_size=1, max_size=6), min_size=1, max_size=12)
    )
    return Schedule(job, bursts, draw(strategies.integers(0, 2**32 - 1)))


def play_schedule(director: Director, schedule: Schedule) -> Actions[None]:
    """Create the job, play the bursts, destroy the job.

    A worker sends to a round only when it has the result of the one before, so a burst of several
    frames does not open a round that the same burst has completed: the engine may discard what is
    queued of a round that the slot leaves behind. Frames that come alone may be of any round.
    """
    job = schedule.job
    choose = random.Random(schedule.seed)
    yield from director.create(job)
    for burst in schedule.bursts:
        if len(burst) == 1:
            yield from director.each([_frame(director, job, burst[0], choose)])
            continue
        possible = [send if send.behind != -1 else replace(send, behind=0) for send in burst]
        yield from director.flood([_frame(director, job, send, choose) for send in possible])
    yield from director.destroy(job)


def _frame(director: Director, job: Job, send: Send, choose: random.Random) -> bytes:
    slot = director.golden.slot(job.number, send.slot)
    full = slot.seen == (1 << job.workers) - 1
    current = slot.round + 1 if full else slot.round
    step = (current - send.behind - job.first_round) % 2**32
    if send.probe:
        return job.probe(send.worker, send.slot, step, opcode=send.opcode)
    blocks = {
        lane: [choose.choice([choose.getrandbits(32), 2**31, 2**31 - 1, 0]) for _ in range(64)]
        for lane in range(job.lanes)
        if send.present >> lane & 1
    }
    words = [choose.getrandbits(32) for _ in range(16)]
    return job.data(send.worker, send.slot, step, blocks, words, opcode=send.opcode)
