"""Checks of an engine in process: each drives it, compares with the golden model, raises if not.

They take the engine as it is handed to them, so that the same check runs on the engine as it is, on
one with a planted bug, on mutants, and where coverage is measured.
"""

import random

from afflux_hdl.contract.registers import address_of
from afflux_hdl.engine.delivery_queue import REPLAYS_PER_JOB, REPLIES
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.cases import CASES, Case
from tests.scenarios.director import LARGE, SMALL, Actions, Build, Director, ReadRegister
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import paces, perform
from tests.scenarios.random_frames import RandomFrames
from tests.scenarios.random_jobs import renew_jobs
from tests.scenarios.stream_worker import StreamWorker
from tests.scenarios.streams import draw_tensor, reduce_in_order, reduce_unkindly
from tests.scenarios.tree_cases import TREE_CASES

__all__ = [
    "BUILDS",
    "DROPS",
    "check_any_frame",
    "check_bounds",
    "check_case",
    "check_cases",
    "check_checksums",
    "check_floods",
    "check_garbage",
    "check_never_waits",
    "check_streams",
    "open_engine",
]

BUILDS: dict[int, Build] = {512: LARGE, 32: SMALL}
"""By width of the bus."""

DROPS = {
    "receive_overflow",
    "replays_dropped",
    "replies_dropped",
    "refusals_dropped",
    "results_dropped",
    "results_discarded",
    "frames_discarded",
    "state_errors",
    "data_errors",
}
"""Counters of what queues and rates leave out, a link that is down, and bits that flip."""


def open_engine(bus_bits: int) -> VerilatedEngine:
    """Return the engine of that width that the tests share."""
    return VerilatedEngine(bus_bits=bus_bits, **BUILDS[bus_bits])


def check_case(engine: VerilatedEngine, build: Build, job: Job, case: Case, seed: int = 6) -> None:
    """One case on a new job."""
    director = Director(**build)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        yield from case(director, job, random.Random(seed))
        yield from director.check_counters()

    perform(engine, scenario(), paces(0.9, 0.1, 1))
    assert engine.statistics().receive_stalls == 0


def check_cases(
    engine: VerilatedEngine, build: Build, job: Job, seed: int = 1, cases: str = "ten"
) -> None:
    """Cases one after the other, on the same job: the ten, or (`tree`) of groups and parents."""
    director = Director(**build)

    def scenario() -> Actions[None]:
        yield from director.configure()
        for case in (CASES if cases == "ten" else TREE_CASES).values():
            yield from director.create(job)
            yield from case(director, job, random.Random(seed))
        yield from director.check_counters()

    perform(engine, scenario(), paces(0.9, 0.1, seed))


def check_any_frame(
    engine: VerilatedEngine, build: Build, seed: int, renewals: int = 4, frames: int = 250
) -> dict[str, int]:
    """Frame by frame, several jobs at once: the same frames in the same order, and all counters.

    Returns the counters.
    """
    choose = random.Random(seed)
    director = Director(**build)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        for _ in range(renewals):
            jobs = yield from renew_jobs(director, build, choose)
            drawn = RandomFrames(choose, director.golden, jobs)
            for _ in range(frames):
                yield from director.each([drawn.any()], mac_error=choose.random() < 0.02)
            yield from director.check_counters()
        return (yield from director.check_counters())

    counters = perform(engine, scenario(), paces(0.8, 0.1, seed))
    assert director.left_out == director.left_out_refusals
    assert engine.statistics().receive_stalls == 0
    return counters


def check_floods(
    engine: VerilatedEngine,
    build: Build,
    ready_share: float,
    renewals: int = 3,
    bursts: int = 6,
    seed: int = 7,
) -> dict[str, int]:
    """Whole rounds of all jobs, shuffled, among frames of every other kind, back to back.

    Every result arrives, and no frame finds the buffer full. Returns the counters.
    """
    choose = random.Random(seed)
    director = Director(**build)

    def burst(jobs: list[Job], frames: RandomFrames) -> list[bytes]:
        sent = [frames.any() for _ in range(40)]
        sent = [frame for frame in sent if not untimely(frame)]
        for job in jobs:
            golden = director.golden.jobs[job.number]
            if golden is None:
                continue
            for slot in range(job.slots):
                state = golden.slots[slot]
                step = (state.round - job.first_round) % 2**32
                if state.waiting:
                    sent += [job.down(slot, step, {0: [step] * 64})] * choose.choice([1, 1, 2])
                if state.seen == golden.full:
                    step = (step + 1) % 2**32
                for worker in range(job.workers):
                    blocks = {lane: [worker + lane] * 64 for lane in range(job.lanes)}
                    sent += [job.data(worker, slot, step, blocks)] * choose.choice([1, 1, 1, 2])
        choose.shuffle(sent)
        return sent

    def untimely(frame: bytes) -> bool:
        """Return whether it is DATA, which comes in order, or JOIN, which may move a worker.

        Or CONFLICT, which is DATA of another kind.
        """
        return len(frame) > 63 and frame[42] & 15 in (0, 2, 9)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        for _ in range(renewals):
            jobs = yield from renew_jobs(director, build, choose)
            frames = RandomFrames(choose, director.golden, jobs)
            for _ in range(bursts):
                yield from director.flood(burst(jobs, frames))
                yield from director.check_counters()
        return (yield from director.check_counters())

    counters = perform(engine, scenario(), paces(ready_share, 0.0, 3))
    assert engine.statistics().receive_stalls == 0
    assert counters["receive_overflow"] == 0
    return counters


def check_garbage(engine: VerilatedEngine, build: Build, steps: int = 20) -> None:
    """Frames of every length from one byte on, back to back, with whole rounds between them."""
    choose = random.Random(11)
    director = Director(**build)
    job = Job(workers=3, lanes=2, slots=2)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        for step in range(steps):
            frames = []
            for slot in range(job.slots):
                for worker in range(job.workers):
                    blocks = {lane: [step, worker] * 32 for lane in range(job.lanes)}
                    frame = job.data(worker, slot, step, blocks)
                    lengths = [choose.randint(1, 200) for _ in range(choose.randint(0, 12))]
                    frames += [frame[:length] for length in lengths]
                    frames.append(frame)
            yield from director.flood(frames)
            # All room is given back.
            assert not (yield ReadRegister(address_of("receive_level")))
        return (yield from director.check_counters())

    counters = perform(engine, scenario())
    assert engine.statistics().receive_stalls == 0
    assert counters["rounds"] == steps * job.slots
    assert counters["receive_overflow"] == 0


def check_never_waits(engine: VerilatedEngine, build: Build, repeats: int = 200) -> None:
    """Thousands of frames that all ask for an answer, while none can be sent: none is stalled."""
    choose = random.Random(12)
    director = Director(**build)
    job = Job(workers=3, lanes=2, slots=4)

    def ask(step: int) -> list[bytes]:
        """One of every frame that is answered: replay, missing, joined, refused."""
        first = [
            job.data(worker, slot, step, {lane: [worker] * 64 for lane in range(job.lanes)})
            for slot in range(job.slots)
            for worker in range(job.workers)
        ]
        questions = [
            job.probe(0, choose.randrange(job.slots), step),
            job.probe(1, choose.randrange(job.slots), step + 1),
            job.join(2),
            job.join(2, key=5),
            first[0],
        ]
        return first + questions * repeats

    perform(engine, director.configure())
    perform(engine, director.create(job))
    sent = []
    for step in range(2):
        frames = ask(step)
        sent += engine.play(frames, Stimulus(ready_share=0.0, drain=False))
        for frame in frames:
            director.golden.receive(frame)
    sent += engine.play([])
    counters = perform(engine, director.read_counters())
    assert engine.statistics().receive_stalls == 0
    # Every frame was judged as if the network had been free ...
    golden = director.golden.counters
    for name in ("frames_in", "accepted", "duplicates", "probes", "joins", "bad_key", "rounds"):
        assert counters[name] == golden[name], name
    assert counters["receive_overflow"] == 0
    # ... and frames that could not be sent are accounted for.
    dropped = sum(counters[f"{name}_dropped"] for name in ("replays", "replies", "refusals"))
    assert counters["replays"] + counters["replays_dropped"] == golden["replays"]
    assert counters["frames_out"] == golden["frames_out"] - dropped
    assert counters["frames_out"] == len(sent) + job.workers


def check_bounds(engine: VerilatedEngine, build: Build) -> None:
    """While nothing can be sent, so many replays and short answers of a job are kept, no more."""
    director = Director(**build)
    stuck = Stimulus(ready_share=0.0, drain=False)
    kept: dict[str, set[int]] = {"replays": set(), "answers": set()}
    perform(engine, director.configure())
    share = build["slots"] // build["jobs"]
    for number in range(build["jobs"]):
        job = Job(number=number, workers=2, lanes=1, slots=1, slot_base=share * number)
        perform(engine, director.create(job))
        perform(engine, director.each([job.data(worker, 0, 0) for worker in range(2)]))
        questions = {
            "replays": job.probe(0, 0, 0),
            "answers": job.probe(1, 0, 1),
        }
        for _ in range(2):
            for what, question in questions.items():
                sent = engine.play([question] * 60, stuck) + engine.play([])
                kept[what].add(len(sent))
                # Those that found the stages behind the queue empty are beyond its bound.
                assert len(set(sent)) == 1, what
        # Fewer are all kept, and leave as much room as there was.
        for what, question in questions.items():
            for asked in range(1, min(kept[what])):
                sent = engine.play([question] * asked, stuck) + engine.play([])
                assert len(sent) == asked, what
            kept[what].add(len(engine.play([question] * 60, stuck) + engine.play([])))
    # Refusals last, as their rate is limited too: all at once, and fewer than that.
    kept["refusals"] = set()
    for _ in range(2):
        sent = engine.play([job.join(0, key=1)] * 60, stuck) + engine.play([])
        assert len(set(sent)) == 1
        kept["refusals"].add(len(sent))
    bounds = {"replays": REPLAYS_PER_JOB, "answers": REPLIES, "refusals": REPLIES // 2}
    for what, bound in bounds.items():
        assert len(kept[what]) == 1, f"{what}: not the same for all jobs and at all times, {kept}"
        (most,) = kept[what]
        assert bound - 4 <= most <= bound + 24, f"{most} {what}"


def check_checksums(engine: VerilatedEngine, build: Build, step: int = 1) -> None:
    """Of all values of the IPv4 and of the UDP checksum one is right, and 0 says none for UDP."""
    director = Director(**build)
    job = Job(workers=1, lanes=1, slots=1)
    perform(engine, director.configure())
    perform(engine, director.create(job))
    frame = job.probe(0, 0, 5)

    def counted(place: int, wrong: str) -> None:
        right = int.from_bytes(frame[place : place + 2], "big")
        values = {right, 0, *range(right % step, 2**16, step)}
        values |= {right ^ (1 << one | 1 << other) for one in range(16) for other in range(16)}
        frames = [frame[:place] + value.to_bytes(2, "big") + frame[place + 2 :] for value in values]
        before = perform(engine, director.read_counters())
        assert engine.play(frames) == []
        after = perform(engine, director.read_counters())
        accepted = {right, 0} if wrong == "bad_checksum" else {right}
        assert after["premature"] - before["premature"] == len(accepted), wrong
        assert after[wrong] - before[wrong] == len(values) - len(accepted), wrong

    counted(24, "bad_ip")
    counted(40, "bad_checksum")


def check_streams(
    engine: VerilatedEngine, build: Build, job: Job, *, unkind: bool, ready_share: float = 1.0
) -> None:
    """Whole tensors, one after the other; `unkind`: with loss, duplication and reordering."""
    director = Director(**build)
    choose = random.Random(3)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        workers = [StreamWorker(job, number) for number in range(job.workers)]
        for size in (1, 63, 3 * job.slots * job.lanes * 64 - 1):
            tensors = [draw_tensor(size, choose) for _ in workers]
            if unkind:
                yield from reduce_unkindly(
                    director, workers, tensors, choose, loss=0.2, duplication=0.2
                )
            else:
                yield from reduce_in_order(director, workers, tensors)
        yield from director.check_counters()

    perform(engine, scenario(), paces(ready_share, 1 - ready_share, 5))
