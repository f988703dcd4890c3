"""Floods of every size of frame at the rate of the bus, with the rounds of an honest job in them.

A beat comes in every cycle, which is more than a line of the stated rate brings: the gap between
frames on Ethernet is slack that none of this counts on.
"""

import random
from collections.abc import Callable, Iterator

from afflux_hdl.engine.answers import REFUSAL_PERIOD_BITS, REFUSALS_BURST
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.golden_device import Engine
from tests.scenarios.job_frames import Job
from tests.scenarios.packing import repaired
from tests.scenarios.performer import perform

__all__ = [
    "FLOOD_BEATS",
    "check_flood",
    "check_mixed_flood",
    "check_refusals",
    "flood_frames",
    "resized",
]

FLOOD_BEATS = range(1, 71)
"""Beats of a flood's frames: from one to more than the largest frame has at 512 bits."""

BURST_CYCLES = 500
"""Beats of a flood between two rounds: more than fill the queues between the stages twice."""

UDP_AT, PAYLOAD_AT = 34, 42


def resized(frame: bytes, size: int) -> bytes:
    """Return a frame of `size` bytes with the same headers, lengths and checksums made right.

    Its headers are cut too if it is shorter than they are.
    """
    changed = bytearray(frame[:size].ljust(size, b"\x5a"))
    if size < PAYLOAD_AT + 1:
        return bytes(changed)
    changed[16:18] = (size - 14).to_bytes(2, "big")
    changed[38:40] = (size - UDP_AT).to_bytes(2, "big")
    return repaired(bytes(changed))


def flood_frames(job: Job, size: int) -> dict[str, bytes]:
    """Return one frame of `size` bytes of every kind that a stranger, or a worker, can send."""
    foreign = job.join(0, version=2)
    join, data = job.join(0, key=1), job.data(0, 0, 0, {0: [1] * 64})
    frames = {
        "join of another version": resized(foreign, size),
        "data of another version": resized(job.data(0, 0, 0, version=15), size),
        "join with another key": resized(join, size),
        "join as it was, cut or with more behind it": join[:size].ljust(size, b"\x5a"),
        "join of another version, likewise": foreign[:size].ljust(size, b"\x5a"),
        "contribution": resized(data, size),
        "question": resized(job.probe(1, 0, 0), size),
    }
    damaged = bytearray(resized(foreign, size))
    damaged[-1] ^= 1
    frames["damaged"] = bytes(damaged)
    frames["to somebody else"] = b"\x02" + resized(data, size)[1:]
    return frames


def check_flood(engine: Engine, build: Build, bus_bits: int, beats: int) -> None:
    """Flood with frames of so many beats, each kind for itself; no contribution is lost.

    Raises:
        AssertionError: If a contribution is lost, or anything else differs from the golden model.
    """

    def bursts(job: Job) -> Iterator[list[bytes]]:
        sizes = {beats * bus_bits // 8, (beats - 1) * bus_bits // 8 + 1}
        for size in sorted(sizes):
            for frame in flood_frames(job, size).values():
                yield [frame] * (BURST_CYCLES // (beats * len(sizes)))

    _check(engine, build, bursts)


def check_mixed_flood(
    engine: Engine,
    build: Build,
    bus_bits: int,
    seed: int,
    bursts: int = 12,
    within_node: bool = False,
) -> None:
    """Flood with frames of all sizes and kinds, in runs of the same and one by one.

    Args:
        engine: The engine, or a node in its place.
        build: Its sizes.
        bus_bits: Width of its bus.
        seed: Determines the frames.
        bursts: Rounds, and floods in which they stand.
        within_node: It is a node's, so that some frames pass to the node's host.

    Raises:
        AssertionError: As of `check_flood`.
    """
    choose = random.Random(seed)

    def mixtures(job: Job) -> Iterator[list[bytes]]:
        for _ in range(bursts):
            frames: list[bytes] = []
            # Mostly the smallest, of which there are the most in a burst.
            sizes = [choose.choice((1, 2, 2, 3, choose.choice(FLOOD_BEATS))) for _ in range(3)]
            while sum(-(-len(frame) * 8 // bus_bits) for frame in frames) < BURST_CYCLES:
                size = choose.choice(sizes) * bus_bits // 8 - choose.choice((0, 0, 1))
                kinds = list(flood_frames(job, size).values())
                frames += [choose.choice(kinds)] * choose.choice((1, 1, 2, 8, 64, BURST_CYCLES))
            yield frames

    _check(engine, build, mixtures, within_node)


def check_refusals(engine: VerilatedEngine, build: Build) -> None:
    """So many JOINs are refused at once, and then one in each period; other answers all come."""
    director = Director(**build)
    job = Job(workers=1, lanes=1, slots=1)
    period = 1 << REFUSAL_PERIOD_BITS

    def refused(asked: int) -> int:
        wrong = (job.join(0, key=1), job.join(0, version=3), job.join(0, job=9))
        return sum(len(engine.play([wrong[n % 3]])) for n in range(asked))

    perform(engine, director.configure())
    perform(engine, director.create(job))
    begun = engine.cycles
    answered = refused(REFUSALS_BURST + 40)
    # The bucket had been full for some cycles.
    due = REFUSALS_BURST + engine.cycles // period - begun // period
    assert due - 1 <= answered <= due
    for _ in range(3):
        assert refused(2) == 0
        assert len(engine.play([job.join(0)] * 5)) == 5
        engine.run(period)
        assert refused(3) == 1
    counters = perform(engine, director.read_counters())
    assert counters["refusals_dropped"] == REFUSALS_BURST + 40 + 3 * 5 - answered - 3
    assert counters["replies_dropped"] == 0


def _check(
    engine: Engine,
    build: Build,
    bursts: Callable[[Job], Iterator[list[bytes]]],
    within_node: bool = False,
) -> None:
    director = Director(**build)
    job = Job(workers=3, lanes=build["lanes"], slots=min(4, build["slots"]))

    def rounds(step: int) -> list[bytes]:
        """Contributions of all sizes to all slots: largest first, behind which the others wait."""
        lanes = {
            slot: range(job.lanes if slot % 2 == 0 else slot // 2) for slot in range(job.slots)
        }
        return [
            job.data(worker, slot, step, {lane: [worker + lane] * 64 for lane in lanes[slot]})
            for worker in range(job.workers)
            for slot in range(job.slots)
        ]

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        step = 0
        frames: list[bytes] = []
        for step, burst in enumerate(bursts(job)):
            # The honest frames stand in the flood, not behind it.
            third = len(burst) // 3
            frames += burst[: 2 * third] + rounds(step) + burst[2 * third :]
        yield from director.flood(frames)
        if within_node:
            counters = yield from director.read_counters()
            assert counters["accepted"] == director.golden.counters["accepted"]
        else:
            counters = yield from director.check_counters()
        assert counters["rounds"] == (step + 1) * job.slots
        return counters

    counters = perform(engine, scenario())
    assert counters["receive_overflow"] == 0
