"""Eight jobs of 64 workers on one engine, one of them hostile: the others do not notice.

The hostile job is real: it has a key, slots and workers of its own. With these it floods the engine
as fast as the bus carries, with all that can be tried against the others without their keys.
"""

import random
from collections import Counter

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.afflux_layer import Afflux
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Group, Job
from tests.scenarios.performer import perform

pytestmark = pytest.mark.slow

BUILT: Build = {"workers": 64, "lanes": 2, "jobs": 8, "slots": 16}
ROUNDS = 2


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
            group=None if number == 3 else Group(f"239.0.0.{number + 1}", 4800 + number),
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

        for step in range(ROUNDS):
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
    assert counters["rounds"] >= ROUNDS * sum(job.slots for job in honest)
    for cause in ("bad_slot", "bad_key", "bad_address", "duplicates"):
        assert counters[cause] > 0, cause


def test_results_wait_for_few_frames_of_a_hostile_job() -> None:
    """While the network takes nothing, a flood queues up; a later result is near the front."""
    choose = random.Random(65)
    honest, hostile = make_jobs()
    job = honest[0]
    director = Director(**BUILT)
    with VerilatedEngine(bus_bits=512, **BUILT) as engine:
        perform(engine, director.configure())
        for each in (job, hostile):
            perform(engine, director.create(each))
        perform(engine, director.flood(contribute([hostile], 0, choose)))
        # Thousands of requests, each of which is due an answer.
        ask = [hostile.probe(worker, 0, 0) for worker in range(64)]
        ask += [hostile.probe(worker, 1, 1) for worker in range(64)]
        stuck = Stimulus(ready_share=0.0, drain=False)
        sent = engine.play(ask * 20, stuck)
        sent += engine.play(contribute([job], 0, choose), stuck)
        sent += engine.play([])
    places = [number for number, frame in enumerate(sent) if to_jobs([frame], [job])]
    assert len(places) == job.slots
    # Eight replays, sixteen short answers, and what had left the queue before.
    assert places[0] <= 8 + 16 + 16


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
