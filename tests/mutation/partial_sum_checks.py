"""A check of partial sums: contributions of them beside numbers, and those that go to a parent."""

import random

from afflux_sim.golden.frames import look_ahead
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.mutation.flip_rounds import EXPONENTS, NAMES, draw_numbers
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job, ParentJob
from tests.scenarios.performer import perform

__all__ = ["check_partial_sums"]

PARTIAL = {1: 13, 2: 10, 3: 11}
"""The dtype of partial sums of each dtype of numbers."""

MINUS_ZERO = {1: 0x8000_0000, 2: 0x8000_8000, 3: 0x8000_8000}
"""Words of nothing but -0, by dtype."""

FORMS = [(one, other) for one in (False, True) for other in (False, True)]
"""Of each round: whether one worker sends partial sums, and the other."""

FIRST_SUM = 8
"""Opcode of a sum that is not scaled."""


def check_partial_sums(engine: VerilatedEngine, build: Build) -> None:
    """Sum numbers and partial sums of each dtype and scale, at the top and below a parent.

    Some elements are infinite, NaN, -0, or not summed. Every answer is the golden model's.
    """
    choose = random.Random(12)
    director = Director(**build)
    lanes = build["lanes"]
    perform(engine, director.configure())
    for parent in (None, ParentJob()):
        job = Job(number=1, workers=2, lanes=lanes, slots=2, slot_base=2, parent=parent)
        perform(engine, director.create(job))
        if parent is not None:
            perform(engine, director.join_parent(job))
            perform(engine, director.each_frame([job.joined_above()]))
        perform(engine, _rounds(director, job, choose))
    perform(engine, director.check_counters())


def _rounds(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    kinds = [(dtype, forms) for dtype in PARTIAL for forms in FORMS] * 2
    # The first round has no blocks: it announces the exponents of those of the next one.
    for step, (dtype, forms) in enumerate([kinds[0], *kinds]):
        following = kinds[step % len(kinds)][0]
        exponent = EXPONENTS[NAMES[following]]
        opcode = FIRST_SUM + step % 3
        every = (1 << job.lanes) - 1 if step else 0
        # A lane that one of them leaves out now and then: no sum there is -0.
        present = [every, every & ~(step % 3 == 0)]
        words = [look_ahead(step, exponent + choose.randrange(3)) for _ in range(job.lanes)]
        for slot in range(job.slots):
            for worker, is_partial in enumerate(forms):
                of = PARTIAL[dtype] if is_partial else dtype
                yield from director.each_frame(
                    [_data(job, worker, slot, step, present[worker], words, opcode, of, choose)]
                )
            if job.parent is not None:
                # Asked for again, before the parent's result is here.
                yield from director.each_frame([job.probe(0, slot, step, opcode=opcode)])
                blocks = {lane: _words(choose, dtype) for lane in range(job.lanes) if step}
                down = job.down(slot, step, blocks, words, opcode=opcode, dtype=dtype)
                yield from director.each_frame([down])
            yield from director.each_frame([job.probe(1, slot, step, opcode=opcode)])


def _data(
    job: Job,
    worker: int,
    slot: int,
    step: int,
    present: int,
    words: list[int],
    opcode: int,
    dtype: int,
    choose: random.Random,
) -> bytes:
    """Return a contribution; of partial sums both planes of a block follow one another."""
    lanes = [lane for lane in range(job.lanes) if present >> lane & 1]
    content = [word for _ in lanes for word in _words(choose, dtype)]
    parts = [content[n : n + 64] for n in range(0, len(content), 64)]
    return job.data(
        worker,
        slot,
        step,
        dict(enumerate(parts)),
        words,
        opcode=opcode,
        dtype=dtype,
        present=present,
    )


def _words(choose: random.Random, dtype: int) -> list[int]:
    """Return a block, of which all elements are drawn, or few and the others are zeros."""
    words = draw_numbers(choose, dtype)
    if choose.random() < 0.5:
        return words
    zero = choose.choice((0, MINUS_ZERO.get(dtype, 0)))
    return [word if choose.random() < 0.1 else zero for word in words]
