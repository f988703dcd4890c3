"""Checks an engine with frames that miss by little, each judged as the golden model judges it."""

from collections.abc import Collection, Iterator

from afflux_hdl.contract.registers import FRAME_COUNTERS, counter_address
from tests.scenarios.director import PARTIAL_DTYPES, Actions, Build, Director
from tests.scenarios.golden_device import Engine
from tests.scenarios.job_frames import Job, ParentJob
from tests.scenarios.near_misses import near_misses
from tests.scenarios.performer import perform

__all__ = ["misjudged"]

REFUSED = 12
COUNTED = [counter.name for counter in FRAME_COUNTERS] + ["refusals_dropped"]


def misjudged(
    engine: Engine, build: Build, partials: Collection[int] = PARTIAL_DTYPES
) -> Iterator[str]:
    """Play near misses of frames of every kind; yield each that the engine judges differently.

    The frames from which they differ change nothing: questions, JOINs, and what has been taken
    before. So one that is wrongly taken is seen and harms no other.

    Args:
        engine: Fresh.
        build: Its sizes.
        partials: Dtypes of the partial sums that it takes.
    """
    director = Director(**build, partials=partials)
    job = Job(
        number=build["jobs"] - 1,
        workers=2,
        lanes=1,
        slots=2,
        key=0x8123_4567_89AB_CDE7,
        parent=ParentJob(),
    )

    def prepare() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        yield from director.join_parent(job)
        for worker in range(2):
            yield from director.each([job.data(worker, 0, 0, {0: [worker] * 64})])
        yield from director.each([job.down(0, 0, {0: [5] * 64}), job.data(0, 1, 0)])

    perform(engine, prepare())
    right = {
        "question": job.probe(0, 1, 0),
        "contribution": job.data(0, 1, 0),
        "result from above": job.down(0, 0, {0: [5] * 64}),
        "confirmation from above": job.joined_above(),
        # Last, as one that is right but for its address moves a worker.
        "join": job.join(1),
    }
    counted = _counters(engine)
    for kind, frame in right.items():
        for what, near in near_misses(frame, thorough=kind == "question"):
            before, expected_before = counted, dict(director.golden.counters)
            got, expected = engine.play([near]), director.golden.receive(near)
            counted = _counters(engine)
            difference = _difference(
                {name for name in COUNTED if counted[name] != before[name]},
                {
                    name
                    for name in COUNTED
                    if director.golden.counters[name] != expected_before[name]
                },
                got,
                expected,
            )
            if difference:
                yield f"{kind}: {what}: {difference}"


def _difference(grown: set[str], due: set[str], got: list[bytes], expected: list[bytes]) -> str:
    """Compare the counters that grew and the answers; return what differs, or an empty text."""
    if "refusals_dropped" in grown and [answer[42] & 15 for answer in expected] == [REFUSED]:
        expected, due = [], due | {"refusals_dropped"}
    if grown != due:
        return f"counted as {sorted(grown)}, not as {sorted(due)}"
    return "" if got == expected else f"{len(got)} answers, not {len(expected)}, or others"


def _counters(engine: Engine) -> dict[str, int]:
    """Return the lower words of the counters of frames."""
    return {name: engine.read(counter_address(name)) for name in COUNTED}
