"""Floods: frames back to back, as many as the bus carries, while the network takes few or none."""

import random

import pytest
from tests.cocotb.director import Actions, Director
from tests.cocotb.job_frames import Job
from tests.cocotb.performer import paces, perform
from tests.sim.random_frames import RandomFrames
from tests.sim.random_jobs import renew_jobs

from afflux_sim.stimulus import Stimulus
from afflux_sim.verilated import VerilatedEngine

# By width of the bus.
BUILDS = {
    512: {"workers": 64, "lanes": 16, "jobs": 4, "slots": 16},
    32: {"workers": 5, "lanes": 3, "jobs": 3, "slots": 8},
}
WIDTHS = pytest.mark.parametrize("bus_bits", list(BUILDS))


def open_engine(bus_bits: int) -> VerilatedEngine:
    return VerilatedEngine(bus_bits=bus_bits, **BUILDS[bus_bits])


@WIDTHS
@pytest.mark.parametrize("ready_share", [1.0, 0.5])
def test_rounds_among_other_frames(bus_bits: int, ready_share: float) -> None:
    """Hundreds of frames back to back: every result arrives, and no frame finds the buffer full."""
    choose = random.Random(7)
    build = BUILDS[bus_bits]
    director = Director(**build)

    def burst(jobs: list[Job], frames: RandomFrames) -> list[bytes]:
        """Whole rounds of all jobs, shuffled, among frames of every other kind."""
        sent = [frames.any() for _ in range(40)]
        sent = [frame for frame in sent if not untimely(frame)]
        for job in jobs:
            if director.golden.jobs[job.number] is None:
                continue
            for slot in range(job.slots):
                state = director.golden.slot(job.number, slot)
                step = (state.round + 1 - job.first_round) % 2**32
                for worker in range(job.workers):
                    blocks = {lane: [worker + lane] * 64 for lane in range(job.lanes)}
                    sent += [job.data(worker, slot, step, blocks)] * choose.choice([1, 1, 1, 2])
        choose.shuffle(sent)
        return sent

    def untimely(frame: bytes) -> bool:
        """Whether it is DATA, which comes in order, below, or JOIN, which may move a worker."""
        return len(frame) > 63 and frame[42] & 15 in (0, 2)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        for _ in range(3):
            jobs = yield from renew_jobs(director, build, choose)
            frames = RandomFrames(choose, director.golden, jobs)
            for _ in range(6):
                yield from director.flood(burst(jobs, frames))
                yield from director.check_counters()
        return (yield from director.check_counters())

    with open_engine(bus_bits) as engine:
        counters = perform(engine, scenario(), paces(ready_share, 0.0, 3))
        assert engine.statistics().receive_stalls == 0
    assert counters["rounds"] > 50
    assert counters["receive_overflow"] == 0


@WIDTHS
def test_garbage_back_to_back(bus_bits: int) -> None:
    """Frames of every length from one byte on, with whole rounds between them."""
    choose = random.Random(11)
    director = Director(**BUILDS[bus_bits])
    job = Job(workers=3, lanes=2, slots=2)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        for step in range(20):
            frames = []
            for slot in range(job.slots):
                for worker in range(job.workers):
                    blocks = {lane: [step, worker] * 32 for lane in range(job.lanes)}
                    frame = job.data(worker, slot, step, blocks)
                    lengths = [choose.randint(1, 200) for _ in range(choose.randint(0, 12))]
                    frames += [frame[:length] for length in lengths]
                    frames.append(frame)
            yield from director.flood(frames)
        return (yield from director.check_counters())

    with open_engine(bus_bits) as engine:
        counters = perform(engine, scenario())
        assert engine.statistics().receive_stalls == 0
    assert counters["rounds"] == 20 * job.slots
    assert counters["receive_overflow"] == 0


@WIDTHS
def test_receiving_never_waits_for_the_network(bus_bits: int) -> None:
    """Thousands of frames that all ask for an answer, while none can be sent."""
    choose = random.Random(12)
    director = Director(**BUILDS[bus_bits])
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
        return first + questions * 200

    with open_engine(bus_bits) as engine:
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
    # ... and what could not be sent is accounted for.
    dropped = counters["replays_dropped"] + counters["replies_dropped"]
    assert counters["replays"] + counters["replays_dropped"] == golden["replays"]
    assert counters["frames_out"] == golden["frames_out"] - dropped
    assert counters["frames_out"] == len(sent) + job.workers
