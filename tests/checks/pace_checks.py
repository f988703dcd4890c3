"""Checks of the engine's pace: the cycles that its documentation states."""

from itertools import product

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["IDLE", "LATENCY", "check_idle", "check_pace"]

LATENCY = {512: (35, 35), 32: (35, 83)}
"""By width: cycles from a round's last beat in to its result's first beat out, for a packet without
blocks, and for one with some. One cycle more if the frame ends at the wrong phase. As in the
docstring of `afflux_hdl.engine.engine.Engine`."""


def check_pace(engine: VerilatedEngine, build: Build, bus_bits: int, later: int = 0) -> None:
    """Check the latency of a result of every size, at both phases, and that it has no gap.

    Of each job, whichever came before it.

    Args:
        engine: The engine.
        build: Its sizes.
        bus_bits: Width.
        later: Cycles more than otherwise: 1 with an output register of the slot memory.
    """
    director = Director(**build)
    job = Job(workers=2, lanes=build["lanes"], slots=2)
    perform(engine, director.configure())
    perform(engine, director.create(job))
    step = 0
    for count in (*range(job.lanes + 1), 0, 1):
        seen = set()
        for offset in range(2):
            blocks = {lane: [lane] * 64 for lane in range(count)}
            engine.play([job.data(0, 1, step, blocks)])
            if (engine.cycles ^ offset) & 1:
                engine.run(1)
            latency, gaps = _measure(engine, job.data(1, 1, step, blocks))
            assert gaps == 0, f"{count} blocks: {gaps} gaps"
            least = LATENCY[bus_bits][count > 0] + later
            assert least <= latency <= least + 1, (count, latency)
            seen.add(latency)
            step += 1
        assert len(seen) == 2, f"{count} blocks: at both phases {seen}"
    engine.reset()
    _check_pace_by_job(engine, build, LATENCY[bus_bits][0] + later)


def _check_pace_by_job(engine: VerilatedEngine, build: Build, fixed: int) -> None:
    """Check that a result takes `fixed` cycles, or one more, whose result ever came before.

    And whether that was a new one or one that was asked for again.
    """
    director = Director(**build)
    numbers = range(build["jobs"])
    jobs = [Job(number=n, workers=2, lanes=1, slots=1, slot_base=n) for n in numbers]
    perform(engine, director.configure())
    for job in jobs:
        perform(engine, director.create(job))
    steps = [0] * len(jobs)

    def latency(number: int, offset: int) -> int:
        step, steps[number] = steps[number], steps[number] + 1
        engine.play([jobs[number].data(0, 0, step)])
        if (engine.cycles ^ offset) & 1:
            engine.run(1)
        return _measure(engine, jobs[number].data(1, 0, step))[0]

    for before in numbers:
        for number in numbers:
            for again, offset in product((False, True), range(2)):
                seen = [latency(before, offset)]
                if again:
                    assert len(engine.play([jobs[before].data(0, 0, steps[before] - 1)])) == 1
                seen.append(latency(number, offset))
                assert all(fixed <= cycles <= fixed + 1 for cycles in seen), (
                    f"job {number} behind job {before}: {seen} cycles"
                )


IDLE = {512: (15, 6, 4), 32: (31, 7, 64)}
"""By width: cycles from the end of a contribution without blocks that completes nothing until the
engine is idle; how many more with a block, whose note is written then; and for each block, its
beats. One cycle more if the frame ends at the wrong phase."""


def check_idle(engine: VerilatedEngine, build: Build, bus_bits: int, later: int = 0) -> None:
    """Check that the engine is idle when all blocks of a contribution are written, not before.

    Args:
        engine: The engine.
        build: Its sizes.
        bus_bits: Width.
        later: As of `check_pace`. On a narrow bus blocks wait for their exponent anyway.
    """
    director = Director(**build)
    job = Job(workers=2, lanes=build["lanes"], slots=1)
    without, more, each = IDLE[bus_bits]
    more += later if bus_bits == 512 else 0
    perform(engine, director.configure())
    for count in range(job.lanes + 1):
        seen = set()
        for offset in range(2):
            perform(engine, director.create(job))
            if (engine.cycles ^ offset) & 1:
                engine.run(1)
            assert (
                engine.feed([job.data(0, 0, 0, {lane: [lane] * 64 for lane in range(count)})]) == []
            )
            begun = engine.cycles
            assert engine.play([]) == []
            seen.add(engine.cycles - begun)
        expected = without + (count > 0) * more + each * count
        assert seen == {expected, expected + 1}, f"{count} blocks: {seen}, not {expected}"


def _measure(engine: VerilatedEngine, last: bytes) -> tuple[int, int]:
    """Latency of the results that a frame causes, and cycles without a beat within them."""
    engine.feed([last])
    begun, beats = engine.cycles, engine.statistics().beats_out
    while engine.statistics().beats_out == beats:
        engine.run(1)
        if engine.cycles - begun > 10_000:
            raise AssertionError("no result after 10000 cycles")
    first = engine.cycles
    whole = len(engine.play([]))
    assert whole == 2, f"{whole} results"
    statistics = engine.statistics()
    # The engine is idle with the last beat.
    return first - begun, statistics.cycles - first - (statistics.beats_out - beats - 1)
