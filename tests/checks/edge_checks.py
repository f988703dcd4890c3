"""Checks at the edges of a build: all slots, jobs, workers and lanes in use at the same time.

They go once through every place of every table that an engine has for these, with different values
in all places at once. The engine's frames are compared with the golden model, frame by frame, and
so are all counters: nothing may be dropped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from afflux_hdl.contract.registers import Command, address_of
from afflux_hdl.engine.delivery_queue import REPLAYS_PER_JOB, REPLIES
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.command_checks import check_reasons
from tests.scenarios.director import Build, Director
from tests.scenarios.filled_pool import (
    JOIN,
    PROBE,
    contribution,
    from_above,
    job_of_all_slots,
    joined_above,
    question,
    sharing_jobs,
)
from tests.scenarios.job_frames import Job
from tests.scenarios.packing import HEADER
from tests.scenarios.performer import perform

__all__ = [
    "check_all_jobs",
    "check_all_parents",
    "check_all_slots",
    "check_edges",
    "check_workers_of_all_jobs",
]

_STUCK = Stimulus(ready_share=0.0, drain=False)
_BUSY_READS = 10_000
_STEPS = (0, 1)
"""A round for each version of a slot."""


def check_edges(engine: VerilatedEngine, build: Build, *, queues: bool = True) -> None:
    """All of them, one after the other; for the arguments see `check_all_jobs`."""
    check_all_slots(engine, build)
    check_all_jobs(engine, build, queues=queues)
    check_workers_of_all_jobs(engine, build)
    check_all_parents(engine, build)
    if build["jobs"] > 1:
        # Slots of one job are refused to all others.
        check_reasons(engine, build, creates=200)


def check_all_slots(engine: VerilatedEngine, build: Build) -> None:
    """Give the job of the highest number all slots, and each of them two rounds with all lanes.

    All rounds are half done before one is completed; at the end each slot is asked for both. Slots
    whose numbers differ in one bit are two rounds apart: what is of one is stale for the other.
    """
    filled = _Filled(engine, build)
    job = job_of_all_slots(build, _few(build))
    filled.create([job])
    odd = [slot for slot in range(job.slots) if slot.bit_count() & 1]
    for step in _STEPS:
        for worker in range(job.workers):
            filled.exchange([contribution(job, worker, slot, step, ()) for slot in odd])
    rounds = [
        [(slot, step + len(_STEPS) * (slot.bit_count() & 1)) for slot in range(job.slots)]
        for step in _STEPS
    ]
    lanes = range(build["lanes"])
    for each in rounds:
        for worker in range(job.workers):
            filled.exchange([contribution(job, worker, *place, lanes) for place in each])
    asked = [
        question(job, job.workers - 1, PROBE, *place)
        for pair in zip(*rounds, strict=True)
        for place in pair
    ]
    for some in _parts(asked, REPLAYS_PER_JOB):
        filled.exchange(some)
    filled.end([job])


def check_all_jobs(engine: VerilatedEngine, build: Build, *, queues: bool = True) -> None:
    """All jobs share all slots; as many results and replays as there can be wait at once.

    Those that are asked for again are of each job's first slot, the results of all others. In the
    second turn every ring goes round.

    Args:
        engine: The engine.
        build: Its sizes.
        queues: It has a network that can make it wait, and queues for that. One in software sends
            at once.
    """
    filled = _Filled(engine, build)
    jobs = sharing_jobs(build, _few(build), groups=True)
    filled.create(jobs)
    slots = range(jobs[0].slots)

    def rounds(steps: Sequence[int], some: Sequence[int]) -> list[bytes]:
        return [
            contribution(job, worker, slot, step, [(slot + step) % build["lanes"]])
            for step in steps
            for worker in range(_few(build))
            for slot in some
            for job in jobs
        ]

    for turn in range(2):
        steps = [len(_STEPS) * turn + step for step in _STEPS]
        again = [
            question(job, number % job.workers, PROBE, 0, steps[number // job.workers % 2])
            for number in range(REPLAYS_PER_JOB)
            for job in jobs
        ]
        filled.exchange(rounds(steps, slots[:1]))
        filled.exchange(rounds(steps, slots[1:]) + again, stuck=queues)
    filled.end(jobs)


def check_workers_of_all_jobs(engine: VerilatedEngine, build: Build) -> None:
    """All jobs have all workers, which contribute to one round of the job's last slot."""
    filled = _Filled(engine, build)
    jobs = sharing_jobs(build, build["workers"])
    filled.create(jobs)
    last, lane = jobs[0].slots - 1, build["lanes"] - 1
    for worker in range(build["workers"]):
        filled.exchange([contribution(job, worker, last, 0, [lane]) for job in jobs])
        # The missing workers, while there are any: the bitmap of all jobs.
        for some in _parts([question(job, worker, PROBE, last) for job in jobs], REPLAYS_PER_JOB):
            filled.exchange(some)
    filled.end(jobs)


def check_all_parents(engine: VerilatedEngine, build: Build) -> None:
    """All jobs have a parent, which gets what their last slots hold and sends other sums back."""
    filled = _Filled(engine, build)
    jobs = sharing_jobs(build, 1, parents=True)
    filled.create(jobs)
    for job in jobs:
        filled.join_parent(job)
    filled.exchange([joined_above(job) for job in jobs])
    last, lane = jobs[0].slots - 1, build["lanes"] - 1
    filled.exchange([contribution(job, 0, last, 0, [lane]) for job in jobs])
    filled.exchange([from_above(job, last, 0, [lane]) for job in jobs])
    filled.end(jobs)


def _few(build: Build) -> int:
    """Return a number of workers that leaves rounds open between two contributions."""
    return min(2, build["workers"])


def _parts(frames: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (frames[at : at + size] for at in range(0, len(frames), size))


class _Filled:
    """An engine beside the golden model, to which both get the same frames."""

    def __init__(self, engine: VerilatedEngine, build: Build) -> None:
        self._engine = engine
        self._director = Director(**build)
        perform(engine, self._director.configure())
        self._before = perform(engine, self._director.read_counters())

    def create(self, jobs: Sequence[Job]) -> None:
        """Create jobs, whose workers join."""
        for job in jobs:
            perform(self._engine, self._director.create(job, join=False))
        joins = [question(job, worker, JOIN) for job in jobs for worker in range(job.workers)]
        for some in _parts(joins, REPLIES):
            self.exchange(some)

    def join_parent(self, job: Job) -> None:
        """Let a job join its parent, as the operator commands."""
        self._engine.write(address_of("job_index"), job.number)
        self._engine.write(address_of("job_command"), Command.JOIN_PARENT)
        for _ in range(_BUSY_READS):
            if not self._engine.read(address_of("job_busy")):
                break
        assert self._engine.play([]) == [self._director.golden.join_parent(job.number)]

    def exchange(self, frames: Sequence[bytes], stuck: bool = False) -> None:
        """Play frames back to back; the answers are those of the model.

        Args:
            frames: The frames.
            stuck: The network takes nothing before the last of them is in.
        """
        got = self._engine.play(frames, _STUCK) if stuck else self._engine.play(frames)
        got += self._engine.play([])
        expected = [answer for frame in frames for answer in self._director.golden.receive(frame)]
        lacking, extra = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
        assert not lacking and not extra, (
            f"{lacking.total()} frames lack, such as {_headers(lacking)}; "
            f"{extra.total()} are wrong, such as {_headers(extra)}"
        )

    def end(self, jobs: Sequence[Job]) -> None:
        """Compare the counters, and destroy the jobs."""
        got = perform(self._engine, self._director.read_counters())
        expected = self._director.golden.counters
        different = {
            name: f"{got[name] - before}, not {expected[name]}"
            for name, before in self._before.items()
            if got[name] - before != expected[name]
        }
        assert not different, f"counters: {different}"
        for job in jobs:
            perform(self._engine, self._director.destroy(job))


def _headers(frames: Counter[bytes]) -> list[str]:
    """Return what the first few of these frames are."""
    found = []
    for frame in list(frames)[:3]:
        kind, _, job, worker, slot, present, round_, _, _ = HEADER.unpack_from(frame, 42)
        found.append(
            f"type {kind & 15} job {job} worker {worker} slot {slot} round {round_:#x} "
            f"present {present:#x}"
        )
    return found
