"""Checks of the rings in which deliveries wait: each job has two, in a memory that all share."""

from collections import Counter
from itertools import accumulate

from afflux_hdl.contract.registers import Command, address_of
from afflux_hdl.engine.delivery_queue import REPLAYS_PER_JOB
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.slow_network import STUCK, SlowNetwork
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["check_discarded_replays", "check_emptied", "check_neighbouring_rings"]

ASKED_AGAIN = 40
"""More than wait behind the queue and in it."""

ORDERED_CYCLES = 40
"""By when what has come in is queued; ten times as many until a job is destroyed."""

SHARES = {8: ((1, 3, 4), (2, 5, 1), (4, 2, 2)), 16: ((1, 3, 4, 8), (2, 6, 5, 3), (8, 4, 3, 1))}
"""By slots of the pool: how many of them each job has."""


def check_discarded_replays(engine: VerilatedEngine, build: Build) -> None:
    """Destroy a job with as many results asked for again as are kept: all of them are counted.

    There may be fewer slots than that.
    """
    director = Director(**build)
    golden = director.golden
    network = SlowNetwork(engine)
    network.perform(director.configure())
    job = Job(workers=1, lanes=1, slots=1, first_round=0)
    discarded = 0
    for _ in range(2):
        perform(engine, director.create(job))
        frame = job.data(0, 0, 0)
        assert engine.play([frame]) == golden.receive(frame)
        before = perform(engine, director.read_counters())["replays"]
        network.sent.clear()
        network.sent += engine.play([frame] * ASKED_AGAIN, STUCK)
        queued = perform(engine, director.read_counters())["replays"] - before
        assert queued > REPLAYS_PER_JOB
        network.perform(director.destroy(job))
        discarded += queued - len(network.sent) - len(engine.play([]))
        counted = perform(engine, director.read_counters())["results_discarded"]
        assert counted == discarded, f"{discarded} discarded by now, {counted} counted"


def check_emptied(engine: VerilatedEngine, build: Build) -> None:
    """Destroy a job with results queued: as many are counted as the ring had.

    Of several sizes of the ring, full and not, and wherever its oldest entry is.
    """
    director = Director(**build)
    perform(engine, director.configure())
    for slots in range(build["slots"], 0, -3):
        job = Job(workers=2, lanes=1, slots=slots, first_round=0)
        for ahead in range(0, 2 * slots, 3):
            for count in {1, slots // 2 + 1, 2 * slots - 1, 2 * slots}:
                perform(engine, director.create(job))
                _destroy_queued(engine, director, job, ahead, count)


def _destroy_queued(
    engine: VerilatedEngine, director: Director, job: Job, ahead: int, count: int
) -> None:
    """Queue `count` results behind `ahead` that have left, and see all of them discarded."""
    before = perform(engine, director.read_counters())["results_discarded"]
    rounds = [
        [job.data(worker, n % job.slots, n // job.slots) for worker in range(job.workers)]
        for n in range(ahead + count)
    ]
    for frames in rounds[:ahead]:
        assert len(engine.play(frames)) == job.workers
    # Answers fill what is behind the queue.
    stuck = [job.join(0)] * 60 + [frame for frames in rounds[ahead:] for frame in frames]
    engine.play(stuck, STUCK)
    for _ in range(ORDERED_CYCLES):
        queued = engine.read(address_of("delivery_level"))
    assert queued == count
    engine.write(address_of("job_command"), Command.DESTROY)
    for _ in range(10 * ORDERED_CYCLES):
        left = engine.read(address_of("delivery_level"))
    assert not left
    after = perform(engine, director.read_counters())["results_discarded"]
    assert after - before == count, f"{job.slots} slots, {count} results behind {ahead}"
    engine.play([])


def check_neighbouring_rings(engine: VerilatedEngine, build: Build) -> None:
    """Fill the rings of all jobs at once, wherever in each of them its oldest entry is.

    A ring that ended elsewhere than its job's slots do would reach into that of another.
    """
    director = Director(**build)
    golden = director.golden
    perform(engine, director.configure())
    for shares in SHARES[build["slots"]]:
        jobs = [
            Job(number=number, workers=1, lanes=1, slots=slots, slot_base=base, first_round=0)
            for number, (slots, base) in enumerate(
                zip(shares, accumulate(shares, initial=0), strict=False)
            )
        ]
        for job in jobs:
            perform(engine, director.create(job))
        # The next round of each slot.
        rounds = [[0] * job.slots for job in jobs]
        for turn in range(2 * max(shares)):
            # An entry more has been in each ring than the last time.
            single = [_next(job, rounds[job.number], turn % job.slots) for job in jobs]
            both = [
                _next(job, rounds[job.number], slot)
                for _ in range(2)
                for job in jobs
                for slot in range(job.slots)
            ]
            for frames, stimulus in ((single, Stimulus()), (both, STUCK)):
                results = Counter(result for one in frames for result in golden.receive(one))
                sent = engine.play(frames, stimulus) + engine.play([])
                assert Counter(sent) == results, f"slots {shares}, turn {turn}"
        for job in jobs:
            perform(engine, director.destroy(job))


def _next(job: Job, rounds: list[int], slot: int) -> bytes:
    """Return the contribution to a slot's next round."""
    rounds[slot] += 1
    return job.data(0, slot, rounds[slot] - 1)
