"""All cases of an engine, one after the other, where a node is around it."""

import random

from tests.scenarios.cases import CASES
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.tree_cases import TREE_CASES

__all__ = ["every_case"]

TAKEN_BY_THE_NODE = "non_switchml"
"""The case whose frames are not for the engine."""

PASSED_BY = frozenset({"frames_in", "bytes_in", "not_ours"})
"""The golden engine's counts of frames that pass to the host instead."""


def every_case(
    director: Director, job: Job, *, uncounted: frozenset[str] = frozenset(), step: int = 1
) -> Actions[None]:
    """Play all cases with a job made anew for each, those with groups and parents too.

    Args:
        director: Of the engine.
        job: As the cases begin.
        uncounted: Counters that may differ from the golden engine's as well.
        step: Of so many cases one is played.

    Raises:
        AssertionError: An answer or a counter is not the golden engine's.
    """
    cases = [case for name, case in CASES.items() if name != TAKEN_BY_THE_NODE]
    yield from director.configure()
    for case in (*cases, *TREE_CASES.values())[::step]:
        yield from director.create(job)
        yield from case(director, job, random.Random(1))
    got = yield from director.read_counters()
    wrong = {name for name, value in got.items() if value != director.golden.counters[name]}
    assert wrong <= PASSED_BY | uncounted, wrong
