"""Checks of what an engine shows of itself: slots, workers, and how full its queues are."""

import random

from afflux_hdl.contract import registers
from afflux_hdl.contract.registers import address_of
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Actions, Build, Director, ReadRegister, WriteRegister
from tests.scenarios.job_frames import Job
from tests.scenarios.packing import repaired
from tests.scenarios.performer import perform
from tests.scenarios.random_frames import RandomFrames
from tests.scenarios.random_jobs import renew_jobs

__all__ = ["check_constants", "check_debug", "check_levels", "check_peaks"]

FOLLOW_CYCLES = 8
"""By when debug registers show what was asked for."""

MERGED_CYCLES = 400
"""By when a frame of the engines that are checked has been merged."""


def check_constants(engine: VerilatedEngine, build: Build, bus_bits: int) -> None:
    """Check that the engine reports what it is and what it was built for."""
    assert engine.read(address_of("identity")) == registers.IDENTITY
    assert engine.read(address_of("build_bus_bits")) == bus_bits
    for name, value in build.items():
        assert engine.read(address_of(f"build_{name}")) == value, name
    assert engine.read(address_of("build_version")) == registers.RELEASE
    assert engine.read(address_of("protocol")) == 2
    # Nobody has said when it was built.
    assert engine.read(address_of("build_time")) == engine.read(address_of("build_commit")) == 0


def check_debug(engine: VerilatedEngine, build: Build, seed: int = 5) -> None:
    """Every slot and every worker of random jobs, in the middle of their rounds."""
    choose = random.Random(seed)
    director = Director(**build)

    def look(name: str, value: int, names: tuple[str, ...]) -> Actions[dict[str, int]]:
        yield WriteRegister(address_of(name), value)
        for _ in range(FOLLOW_CYCLES):
            yield ReadRegister(address_of(name))
        found = {}
        for each in names:
            found[each] = yield ReadRegister(address_of(each))
        return found

    slot_names = tuple(
        f"debug_{name}"
        for name in ("round", "seen_low", "seen_high", "phase", "version_0", "version_1")
    )
    peer_names = tuple(f"debug_peer_{name}" for name in ("mac_low", "mac_high", "address", "port"))

    def slots(job: Job) -> Actions[None]:
        for number in range(job.slots):
            slot = director.golden.slot(job.number, number)
            full = slot.seen == (1 << job.workers) - 1
            held = [
                version.held << 17 | version.conflict << 16 | version.present
                for version in slot.versions
            ]
            got = yield from look("debug_slot", job.slot_base + number, slot_names)
            # The other fields of an empty version do not matter.
            shown = [got.pop(f"debug_version_{n}") for n in range(2)]
            for n, version in enumerate(slot.versions):
                assert shown[n] >> 17 == version.held, (job.number, number, n)
                assert not version.held or shown[n] == held[n], (job.number, number, n)
            # Before the first round all are in, and nobody has been seen.
            seen = slot.seen if any(version.held for version in slot.versions) else 0
            assert got == {
                "debug_round": slot.round,
                "debug_seen_low": seen % 2**32,
                "debug_seen_high": seen >> 32,
                "debug_phase": full | slot.waiting << 1,
            }, (job.number, number)

    def workers(job: Job) -> Actions[None]:
        state = director.golden.jobs[job.number]
        assert state is not None
        for worker in range(build["workers"]):
            got = yield from look("debug_worker", job.number << 8 | worker, peer_names)
            peer = state.joined.get(worker)
            assert got["debug_peer_mac_high"] >> 16 == (peer is not None), (job.number, worker)
            if peer is None:
                continue
            mac = int.from_bytes(peer.mac, "big")
            assert got == {
                "debug_peer_mac_low": mac % 2**32,
                "debug_peer_mac_high": 1 << 16 | mac >> 32,
                "debug_peer_address": int.from_bytes(peer.packed_address, "big"),
                "debug_peer_port": peer.port,
            }, (job.number, worker)

    def from_anywhere(job: Job) -> Actions[None]:
        """Move the workers to where every bit of an address is drawn."""
        for worker in range(job.workers):
            frame = job.join(worker)
            place = choose.randbytes(6), choose.randbytes(4), choose.randbytes(2)
            moved = frame[:6] + place[0] + frame[12:26] + place[1] + frame[30:34] + place[2]
            yield from director.each_frame([repaired(moved + frame[36:])])

    def scenario() -> Actions[None]:
        yield from director.configure()
        for _ in range(3):
            job = Job(workers=build["workers"], lanes=1, slots=1, key=choose.getrandbits(64))
            yield from director.create(job, join=False)
            yield from from_anywhere(job)
            yield from workers(job)
        for _ in range(2):
            jobs = yield from renew_jobs(director, build, choose)
            drawn = RandomFrames(choose, director.golden, jobs)
            for _ in range(3):
                yield from director.each([drawn.any() for _ in range(40)])
                for job in jobs:
                    if director.golden.jobs[job.number] is not None:
                        yield from slots(job)
                        yield from workers(job)

    perform(engine, scenario())


def check_peaks(engine: VerilatedEngine, build: Build, bus_bits: int) -> None:
    """Check that a frame of any size is all in the receive buffer before it is merged."""
    job = Job(workers=1, lanes=build["lanes"], slots=1)
    for count in range(job.lanes + 1):
        director = Director(**build)
        engine.reset()
        perform(engine, director.configure())
        perform(engine, director.create(job))
        frame = job.data(0, 0, 0, {lane: [1] * 64 for lane in range(count)})
        perform(engine, director.each([frame]))
        assert engine.read(address_of("receive_level")) == 0
        assert engine.read(address_of("receive_peak")) == (len(frame) - 64) * 8 // bus_bits
    # One that is cut off is dropped, whatever its size; its room is given back with the next one's.
    for beats in range(1, (len(frame) - 64) * 8 // bus_bits):
        engine.reset()
        assert engine.play([frame[: 64 + beats * bus_bits // 8]]) == []
        levels = [engine.read(address_of(f"receive_{which}")) for which in ("level", "peak")]
        assert levels == [beats, beats]


def check_levels(engine: VerilatedEngine, build: Build, bus_bits: int) -> None:
    """Queues are as full as what was put into them, and peaks stay."""
    stuck = Stimulus(ready_share=0.0, drain=False)
    director = Director(**build)
    job = Job(workers=2, lanes=build["lanes"], slots=build["slots"], first_round=0)
    perform(engine, director.configure())
    perform(engine, director.create(job, join=False))

    def level(name: str) -> int:
        return engine.read(address_of(name))

    assert (level("receive_level"), level("receive_peak")) == (0, 0)
    # The create's fence occupies nothing.
    assert (level("delivery_level"), level("delivery_peak")) == (0, 0)
    engine.play(job.joins())
    blocks = {lane: [1] * 64 for lane in range(job.lanes)}
    deliveries = []
    for step in range(2):
        for slot in range(job.slots):
            frames = [job.data(worker, slot, step, blocks) for worker in range(2)]
            for frame in frames:
                engine.play([frame], stuck)
                # A read takes a cycle, in which the network is as it was.
                for _ in range(MERGED_CYCLES):
                    now = level("delivery_level")
                assert level("receive_level") == 0
            deliveries.append(now)
            # One that is in the stages behind by now was in the queue for a moment.
            assert level("delivery_peak") == max(now, 1)
    # One frame at a time, each of which was all in the buffer before it was merged.
    assert level("receive_peak") == (len(frames[0]) - 64) * 8 // bus_bits
    # Some are in the stages behind; from then on each counts.
    begin = next(n for n, count in enumerate(deliveries) if count > 0)
    assert begin <= 8, deliveries
    assert deliveries[begin:] == list(range(1, len(deliveries) - begin + 1)), deliveries
    assert level("delivery_peak") == deliveries[-1]
    engine.play([])
    assert (level("receive_level"), level("delivery_level")) == (0, 0)
    assert level("delivery_peak") == deliveries[-1]
