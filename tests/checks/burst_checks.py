"""Checks that an event is counted as often as it comes, however fast.

Counts go into a memory, a counter at a time (`afflux_hdl.lib.counter_bank`). Until its turn comes
again, each has some dozens of cycles' events to hold.
"""

import random

from afflux_hdl.contract.registers import FRAME_COUNTERS
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.golden_device import Engine
from tests.scenarios.job_frames import Job
from tests.scenarios.near_misses import near_misses
from tests.scenarios.performer import perform

__all__ = ["check_bursts"]

BURST = 60
RUNT = bytes(60)
"""A frame of one beat, or a few, which is nobody's."""
LEAST_KINDS = 10


def check_bursts(engine: Engine, build: Build) -> None:
    """Play a frame of each kind that is counted again and again, without a gap.

    Args:
        engine: Fresh.
        build: Its sizes.

    Raises:
        AssertionError: A counter, or an answer, is not the golden engine's.
    """
    choose = random.Random(4)
    director = Director(**build)
    job = Job(workers=2, lanes=1, slots=2, key=0x8123_4567_89AB_CDE7)

    def scenario() -> Actions[int]:
        yield from director.configure()
        yield from director.create(job)
        for worker in range(2):
            yield from director.each([job.data(worker, 0, 0, {0: [worker] * 64})])
        question, contribution = job.probe(0, 1, 0), job.data(0, 0, 0, {0: [0] * 64})
        burst = [question] * BURST
        yield from director.flood(burst, [True] * BURST)
        yield from director.flood(burst)
        yield from director.flood([contribution] * BURST)
        seen: set[str] = set()
        for right in (question, contribution, job.join(1)):
            for _, near in near_misses(right):
                before = dict(director.golden.counters)
                yield from director.flood([near])
                counted = {
                    counter.name
                    for counter in FRAME_COUNTERS
                    if director.golden.counters[counter.name] != before[counter.name]
                }
                if counted <= seen:
                    continue
                seen |= counted
                yield from director.flood([near] * BURST)
                # With a beat more between some of them: what alternates is not right by chance.
                for share in (0.2, 0.5):
                    mixed = (
                        [RUNT, near] if choose.random() < share else [near] for _ in range(BURST)
                    )
                    yield from director.flood([frame for frames in mixed for frame in frames])
        yield from director.check_counters()
        return len(seen)

    assert perform(engine, scenario()) >= LEAST_KINDS
