"""Checks of what merging computes: numbers that differ in a single bit, at every place."""

import random
from typing import Any

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["check_near_numbers", "check_what_is_agreed", "check_zeros"]

WORDS, ELEMENTS = 16, 64
ROUNDS = 64


def check_near_numbers(engine: VerilatedEngine, build: Build) -> None:
    """Elements under each opcode, and look-ahead words, of which a single bit decides.

    Random numbers nearly always differ in their upper bits already.
    """
    director = Director(**build)
    choose = random.Random(6)
    job = Job(workers=2, lanes=build["lanes"], slots=1)

    def pairs(count: int, first_bit: int) -> list[tuple[int, int]]:
        """Random numbers, each with one that differs in one bit, from `first_bit` on in turn."""
        numbers = [choose.getrandbits(32) for _ in range(count)]
        return [
            (number, number ^ 1 << (first_bit + place) % 32) for place, number in enumerate(numbers)
        ]

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        for step in range(ROUNDS):
            # As many rounds as it takes for each word to meet each bit, and each ALU under each
            # opcode: lanes begin at different bits.
            lanes = range(job.lanes if step < ROUNDS // 4 else 0)
            blocks = {lane: pairs(ELEMENTS, step + lane) for lane in lanes}
            words = pairs(WORDS, step)
            for worker in range(job.workers):
                frame = job.data(
                    worker,
                    0,
                    step,
                    {lane: [pair[worker] for pair in block] for lane, block in blocks.items()},
                    [pair[worker] for pair in words],
                    opcode=step % 4,
                )
                yield from director.each([frame])
        yield from director.check_counters()

    perform(engine, scenario())


def check_what_is_agreed(engine: VerilatedEngine, build: Build) -> None:
    """Operation, opcode and data type of a round: a difference in any bit is a conflict."""
    director = Director(**build)
    choose = random.Random(7)
    job = Job(workers=2, lanes=1, slots=1)
    bits = [("operation", bit) for bit in range(16)]
    bits += [("dtype", bit) for bit in range(4)] + [("opcode", bit) for bit in range(2)]

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        # Twice as many rounds as versions, so that each version meets each bit both ways.
        for step in range(4 * len(bits)):
            field, bit = bits[step // 4]
            fields: dict[str, Any] = {
                "operation": choose.getrandbits(16),
                "dtype": choose.getrandbits(4),
                "opcode": choose.getrandbits(2),
            }
            others = fields | {field: fields[field] ^ 1 << bit}
            for worker in range(job.workers):
                differs = worker == 1 and step % 4 < 2
                agreed = others if differs else fields
                yield from director.each([job.data(worker, 0, step, {0: [1] * 64}, **agreed)])
        counters = yield from director.check_counters()
        assert counters["conflicts"] == 2 * len(bits)

    perform(engine, scenario())


def check_zeros(engine: VerilatedEngine, build: Build) -> None:
    """Compare sums that are zero with numbers near it: a residue of 0 and one of 15 are the same.

    Only a worker that disagrees about the opcode makes such a comparison; its round counts as a
    conflict, and is summed all the same, without any error of the data.
    """
    director = Director(**build)
    choose = random.Random(9)
    job = Job(workers=3, lanes=build["lanes"], slots=1)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        for step in range(12):
            terms = [choose.getrandbits(32) for _ in range(ELEMENTS)]
            near = [(1 << n % 32) - n % 3 for n in range(step, step + ELEMENTS)]
            contributions = (
                (0, terms),
                (0, [-term % 2**32 for term in terms]),
                (step % 4, [number % 2**32 for number in near]),
            )
            for worker, (opcode, numbers) in enumerate(contributions):
                blocks = {lane: numbers[lane:] + numbers[:lane] for lane in range(job.lanes)}
                frame = job.data(worker, 0, step, blocks, numbers[:WORDS], opcode=opcode)
                yield from director.each([frame])
        counters = yield from director.check_counters()
        assert not counters["data_errors"]

    perform(engine, scenario())
