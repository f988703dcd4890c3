"""Eight jobs of 64 workers on one engine, one of them hostile: the others do not notice.

The hostile job is real: it has a key, slots and workers of its own. With these it floods the engine
as fast as the bus carries, with all that can be tried against the others without their keys.
"""

import random
from collections import Counter

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from afflux_hdl.engine.replicate import HEADERS
from afflux_hdl.engine.seal import DEPTH
from afflux_sim.rtl.stimulus import NOT_DRAINED, Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.afflux_layer import Afflux
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job, ResultGroup
from tests.scenarios.performer import perform

pytestmark = [pytest.mark.slow, pytest.mark.long]

BUILT: Build = {"workers": 64, "lanes": 2, "jobs": 8, "slots": 16}


def make_jobs() -> tuple[list[Job], Job]:
    jobs = [
        Job(
            number=number,
            workers=64,
            lanes=2,
            slots=2,
            slot_base=2 * number,
            key=0x1111_1111_1111_1111 * (number + 1),
            # With unicast a round is 64 results: one job shows that, the others would only be slow.
            group=None if number == 3 else ResultGroup(f"239.0.0.{number + 1}", 4800 + number),
        )
        for number in range(8)
    ]
    return jobs[:7], jobs[7]


def contribute(jobs: list[Job], step: int, choose: random.Random) -> list[bytes]:
    """Everybody's contribution to one round of all slots, in random order."""
    frames = [
        job.data(worker, slot, step, {lane: [worker + lane] * 64 for lane in range(2)})
        for job in jobs
        for slot in range(job.slots)
        for worker in range(job.workers)
    ]
    choose.shuffle(frames)
    return frames


def attack(victims: list[Job], own: Job, step: int, choose: random.Random) -> list[bytes]:
    """Frames that a worker of `own` can make, and some with a stolen key from its own address."""
    victim = choose.choice(victims)
    worker, slot = choose.randrange(64), choose.randrange(2)
    spoiled = {0: [99] * 64, 1: [98] * 64}
    return [
        own.data(0, slot, step, spoiled),
        own.data(0, 2 + choose.randrange(14), step, spoiled),
        own.data(0, 0xFFF0 | slot, step, spoiled),
        own.data(worker, slot, step, spoiled, job=victim.number),
        own.join(worker, job=victim.number),
        own.data(worker, slot, step, spoiled, job=victim.number, key=victim.key),
        own.probe(worker, slot, step, job=victim.number, key=victim.key),
        own.probe(1, slot, step),
        own.data(1, slot, step - 1),
        own.join(2),
    ]


def to_jobs(frames: list[bytes], jobs: list[Job]) -> Counter[bytes]:
    """Those that go to workers or groups of `jobs`."""
    addresses = {job.address(worker) for job in jobs for worker in range(job.workers)}
    addresses |= {job.group.address for job in jobs if job.group}
    return Counter(frame for frame in frames if Ether(frame)[IP].dst in addresses)


def test_a_hostile_job_neither_reads_nor_disturbs_nor_starves_others() -> None:
    choose = random.Random(64)
    honest, hostile = make_jobs()
    director = Director(**BUILT)
    with VerilatedEngine(bus_bits=512, **BUILT) as engine:
        perform(engine, director.configure())
        for job in [*honest, hostile]:
            perform(engine, director.create(job))

        for step in range(2):
            legal = contribute(honest, step, choose)
            attacks = [
                frame
                for _ in range(len(legal) // 10)
                for frame in attack(honest, hostile, step, choose)
            ]
            mixed = legal + attacks
            choose.shuffle(mixed)

            def play(frames: list[bytes] = mixed) -> Actions[list[Afflux]]:
                return (yield from director.flood(frames))

            # Compared with the golden model, which judges frame by frame: same results, same drops.
            before = engine.statistics().cycles
            perform(engine, play())
            busy = engine.statistics().cycles - before
            arrival = sum(-(-len(frame) // 64) for frame in mixed)
            leaving = sum(-(-len(f) // 64) for f in legal[:1]) * 64 * 2 + arrival // 2
            # The engine is done about when the last frame is in and what it caused is out.
            assert busy < arrival + leaving + 1000
        counters = perform(engine, director.check_counters())
        assert engine.statistics().receive_stalls == 0
    assert counters["receive_overflow"] == 0
    assert counters["rounds"] >= 2 * sum(job.slots for job in honest)
    for cause in ("bad_slot", "bad_key", "bad_address", "duplicates"):
        assert counters[cause] > 0, cause


def hostile_frames(job: Job, shape: str, step: int) -> list[bytes]:
    """Frames of all workers of a hostile job, to have as much as possible sent in their turn."""
    blocks = {lane: [lane] * 64 for lane in range(job.lanes)}
    rounds = [
        # One worker's blocks go to all of them.
        job.data(worker, slot, step, {} if worker or shape == "empty rounds" else blocks)
        for slot in range(job.slots)
        for worker in range(job.workers)
    ]
    asked = {
        "probes": [job.probe(worker, 0, step) for worker in range(8)] * 4,
        "missing": [job.probe(worker, 1, step + 1) for worker in range(8)] * 3,
        "joins": [job.join(worker) for worker in range(8)] * 3,
        "refusals": [job.join(worker, key=1) for worker in range(8)] * 3,
    }
    return rounds + asked.get(shape, [])


SHAPES = ("sparse rounds", "empty rounds", "group", "probes", "missing", "joins", "refusals")
"""The behaviour of the seven hostile jobs."""

LARGEST_UNITS = 1 + 2 * BUILT["lanes"]
LARGEST_BEATS = 2 * LARGEST_UNITS + 1
QUANTUM = 1 + 4 * BUILT["lanes"]
TURN_BEATS = 2 * (2 * QUANTUM - 1) + QUANTUM
"""A unit is two beats, and each frame has one more, its seal: a turn of all but one unit in the
smallest frames, and then a largest one, of partial sums in all lanes."""

ANSWER_BEATS = 3
MOST_BEATS_BEFORE = (
    (HEADERS + 1) * LARGEST_BEATS + 2 * DEPTH + (BUILT["jobs"] - 1) * TURN_BEATS + ANSWER_BEATS
)
"""Most beats that leave before a result that is at the head of its job's queue: the frames for
which there are orders, what is behind the memories, and a turn of every other job and of the short
answers. `docs/hardware.md`, section 8."""


@pytest.mark.parametrize("mixed", [False, True])
def test_the_worst_wait_behind_hostile_jobs(mixed: bool) -> None:
    """All jobs but one are hostile.

    While the network takes nothing, all that they can make queues up; a result that comes then is
    still near the front. And while it takes all, the same holds.
    """
    choose = random.Random(65)
    hostile = [
        Job(
            number=number,
            workers=64 if shape == "sparse rounds" or not mixed else 16,
            lanes=2,
            slots=2,
            slot_base=2 * number,
            first_round=0,
            key=number + 1,
            group=ResultGroup("239.0.0.1", 4800) if mixed and shape == "group" else None,
        )
        for number, shape in enumerate(SHAPES)
    ]
    victim = Job(number=7, workers=2, lanes=2, slots=2, slot_base=14, first_round=0, key=77)
    director = Director(**BUILT)
    stuck = Stimulus(ready_share=0.0, drain=False)
    beats_before = []
    with VerilatedEngine(bus_bits=512, **BUILT) as engine:
        perform(engine, director.configure())
        for job in (*hostile, victim):
            perform(engine, director.create(job, join=False))
            # No more at once than there is room for answers.
            for first in range(0, job.workers, 32):
                joins = job.joins()[first : first + 32]
                assert len(engine.play(joins)) == len(joins)
        for step in range(4):
            shapes = SHAPES if mixed else ("sparse rounds",) * len(SHAPES)
            frames = [
                hostile_frames(job, shape, step) for job, shape in zip(hostile, shapes, strict=True)
            ]
            choose.shuffle(frames)
            flood = [frame for those in frames for frame in those]
            late = [victim.data(worker, 0, step, {0: [1] * 64}) for worker in range(2)]
            how = stuck if step % 2 else NOT_DRAINED
            sent = engine.play(flood, how)
            sent_before = len(sent)
            sent += engine.play(late, how) + engine.play([])
            first = next(n for n, frame in enumerate(sent) if to_jobs([frame], [victim]))
            beats_before.append(sum(-(-len(frame) // 64) for frame in sent[sent_before:first]))
        counters = perform(engine, director.read_counters())
    assert counters["receive_overflow"] == 0
    print(f"{max(beats_before)} beats before, {MOST_BEATS_BEFORE} at most")
    assert max(beats_before) <= MOST_BEATS_BEFORE
    # The attack is one: it comes close.
    assert max(beats_before) > MOST_BEATS_BEFORE // 2, beats_before


def test_jobs_come_and_go_while_others_run() -> None:
    choose = random.Random(66)
    honest, guest = make_jobs()
    runs = [honest[1], honest[3]]
    director = Director(**BUILT)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        for job in runs:
            yield from director.create(job)
        for step in range(4):
            frames = contribute(runs, step, choose)
            half = len(frames) // 2
            yield from director.flood(frames[:half])
            # In the middle of everybody's round.
            if step % 2 == 0:
                yield from director.create(guest, join=False)
                yield from director.flood(guest.joins()[:4])
            else:
                yield from director.destroy(guest)
            yield from director.flood(frames[half:] + guest.joins()[:2])
        return (yield from director.check_counters())

    with VerilatedEngine(bus_bits=512, **BUILT) as engine:
        counters = perform(engine, scenario())
    assert counters["rounds"] == 4 * sum(job.slots for job in runs)
