"""Checks at the limits of a build: all of its workers, and jobs that share all of its slots."""

from collections.abc import Sequence
from itertools import combinations

from afflux_hdl.contract.registers import address_of
from afflux_hdl.contract.wire import LANES_MAX
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.debug_checks import FOLLOW_CYCLES
from tests.scenarios.director import Actions, Build, Director, ReadRegister
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["check_all_workers", "check_lanes", "check_neighbours", "check_sizes"]


def check_all_workers(engine: VerilatedEngine, build: Build) -> None:
    """Every worker of the largest job counts once, however often its contribution comes.

    Debug registers show who is in.
    """
    director = Director(**build)
    job = Job(workers=build["workers"], lanes=1, slots=1)

    def shown() -> Actions[list[int]]:
        values = []
        for name in ("debug_slot", "debug_seen_low", "debug_seen_high", "debug_phase"):
            # They follow the slot within some cycles, of which each read takes one.
            for _ in range(FOLLOW_CYCLES):
                value = yield ReadRegister(address_of(name))
            values.append(value)
        return values

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        upwards = list(range(job.workers))
        for step, order in enumerate((upwards, upwards[::-1], upwards)):
            seen = 0
            for worker in order:
                frame = job.data(worker, 0, step, {0: [worker + 1] * 64}, [worker])
                # As one frame, which may complete the round; then again, which may not.
                yield from director.each([frame, frame, job.probe(worker, 0, step)])
                seen |= 1 << worker
                last = worker == order[-1]
                expected = [0, seen % 2**32, seen >> 32, last]
                assert (yield from shown()) == expected, (step, worker)
        yield from director.check_counters()

    perform(engine, scenario())


def check_sizes(engine: VerilatedEngine, build: Build) -> None:
    """Jobs of every number of workers and of slots: the last one of each counts, the next does not.

    So every bit of these numbers has something to do.
    """
    director = Director(**build)

    def scenario() -> Actions[None]:
        yield from director.configure()
        for workers in range(1, build["workers"] + 1):
            slots = 1 + workers % build["slots"]
            job = Job(workers=workers, lanes=1, slots=slots, key=workers)
            yield from director.create(job, join=False)
            first, last, beyond = job.join(0), job.join(workers - 1), job.join(workers)
            yield from director.flood([first, last, beyond])
            asked = [
                job.data(worker, slot, 0)
                for worker in (workers - 1, workers)
                for slot in (slots - 1, slots)
            ]
            yield from director.flood(asked)
            yield from director.flood([job.data(worker, 0, 0) for worker in range(workers)])
        yield from director.check_counters()

    perform(engine, scenario())


def check_lanes(engine: VerilatedEngine, build: Build) -> None:
    """Frames of every number of blocks, more than the build has lanes too, and every two lanes."""
    director = Director(**build)
    # The lowest lanes, the highest, and every two: where a walk through them may go wrong.
    sets: list[Sequence[int]] = [range(count) for count in range(LANES_MAX + 1)]
    sets += [range(first, LANES_MAX) for first in range(LANES_MAX)]
    sets += combinations(range(LANES_MAX), 2)

    def scenario() -> Actions[None]:
        yield from director.configure()
        for lanes in {1, build["lanes"]}:
            job = Job(workers=1, lanes=lanes, slots=1)
            yield from director.create(job)
            for step, chosen in enumerate(sets):
                blocks = {lane: [lane] * 64 for lane in chosen}
                answers = yield from director.each([job.data(0, 0, step, blocks)])
                if not answers:
                    # The round is still to be made.
                    yield from director.each([job.data(0, 0, step)])
        yield from director.check_counters()

    perform(engine, scenario())


def check_neighbours(engine: VerilatedEngine, build: Build) -> None:
    """Create and destroy a job of any size beside another, which notices nothing.

    The other has the rest of the slots, with half a round in each, and as many workers, whose
    numbers are the same.
    """
    director = Director(**build)
    slots, lanes = build["slots"], build["lanes"]
    workers = build["workers"]

    def halves(job: Job, step: int, worker: int) -> list[bytes]:
        return [
            job.data(worker, slot, step, {0: [slot + worker] * 64}) for slot in range(job.slots)
        ]

    def scenario() -> Actions[None]:
        yield from director.configure()
        for count in range(1, slots):
            here = Job(number=0, workers=workers, lanes=lanes, slots=count, key=count)
            beside = Job(
                number=1, workers=2, lanes=1, slots=slots - count, slot_base=count, key=count
            )
            yield from director.create(beside)
            yield from director.each(halves(beside, 0, 0))
            yield from director.create(here, join=False)
            yield from director.each(halves(beside, 0, 1))
            yield from director.each(halves(beside, 1, 1))
            yield from director.destroy(here)
            yield from director.each(halves(beside, 1, 0))
            yield from director.destroy(beside)
        yield from director.check_counters()

    perform(engine, scenario())
