"""Checks of what an operator does with an engine: registers, job commands, reset."""

import random
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import replace
from ipaddress import IPv4Address

from afflux_hdl.contract.registers import (
    COUNTERS,
    REGISTERS,
    Access,
    Command,
    Reason,
    WriteRefused,
    address_of,
    counter_address,
)
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.slow_network import STUCK, SlowNetwork
from tests.scenarios.cases import CASES, reduce_round
from tests.scenarios.director import Actions, Build, Director, Play, ReadRegister, WriteRegister
from tests.scenarios.job_frames import Job, ParentJob, ResultGroup
from tests.scenarios.packing import repaired
from tests.scenarios.performer import perform

__all__ = [
    "check_addresses",
    "check_behind_a_join",
    "check_commands",
    "check_last_busy_cycle",
    "check_own_addresses",
    "check_registers",
    "check_reset",
    "check_reset_with_full_queues",
    "check_stuck_results",
]

HELD = [
    register
    for register in REGISTERS
    if register.access is Access.READ_WRITE and register.name != "job_command"
]
SECRET = [register for register in REGISTERS if register.access is Access.WRITE_ONLY]
REFUSED, BAD_JOB = 12, 2
LAST_ADDRESS = 2**REGISTER_ADDRESS_BITS - 4
"""Left to those who put a register of their own around an engine, as `tests.mutation` does."""


def check_registers(engine: VerilatedEngine) -> None:
    """Each register that can be written holds its own bits and no other's; the rest reads 0."""
    values = {register.name: 0 for register in HELD}

    def compare() -> None:
        for register in HELD:
            assert engine.read(register.address) == values[register.name], register.name

    compare()
    for register in HELD:
        for pattern in (0xFFFF_FFFF, 0x5A5A_A5A5, 0xA5A5_5A5A, 0):
            engine.write(register.address, pattern)
            got = engine.read(register.address)
            assert got == pattern % 2**register.width, register.name
    for number, register in enumerate(HELD):
        value = (0x9E37_79B9 * (number + 1)) % 2**register.width
        engine.write(register.address, value)
        values[register.name] = value
        compare()
    for register in SECRET:
        engine.write(register.address, 0xFFFF_FFFF)
        assert engine.read(register.address) == 0, register.name
        compare()
    used = {register.address for register in REGISTERS}
    used |= {counter_address(counter.name) + half for counter in COUNTERS for half in (0, 4)}
    for address in range(0, LAST_ADDRESS, 4):
        if address not in used:
            engine.write(address, 0xFFFF_FFFF)
            assert engine.read(address) == 0, hex(address)
    compare()
    for counter in COUNTERS:
        assert engine.read(counter_address(counter.name)) == 0, counter.name


def check_commands(engine: VerilatedEngine, build: Build) -> None:
    """Create at and beyond every limit, command what has no job, and command while one is busy."""
    director = Director(**build)
    choose = random.Random(4)
    slots, lanes, workers = build["slots"], build["lanes"], build["workers"]
    fitting = Job(number=1, workers=2, lanes=1, slots=2, slot_base=1, first_round=3)
    limits = {
        "job_workers": workers,
        "job_lanes": lanes,
        "job_slot_count": slots - fitting.slot_base,
        "job_slot_base": slots - fitting.slots,
    }
    reasons = {
        "job_workers": Reason.WORKERS,
        "job_lanes": Reason.LANES,
        "job_slot_count": Reason.SLOTS,
        "job_slot_base": Reason.SLOTS,
    }
    widths = {register.name: register.width for register in REGISTERS}

    def write(name: str, value: int) -> Actions[None]:
        yield WriteRegister(address_of(name), value)

    def wait() -> Actions[None]:
        while (yield ReadRegister(address_of("job_busy"))):
            pass

    def check_reason(reason: Reason) -> Actions[None]:
        got = yield ReadRegister(address_of("job_reason"))
        assert got == reason, f"{Reason(got)!r}, not {reason!r}"

    def create_with(name: str, value: int) -> Actions[None]:
        """Create the fitting job with one parameter changed, which does not fit."""
        yield from write(name, value)
        yield from write("job_command", Command.CREATE)
        yield from wait()
        enabled = yield ReadRegister(address_of("job_enabled"))
        assert not enabled, f"{name} = {value}"
        yield from check_reason(reasons[name])

    def too_much() -> Actions[None]:
        for name, limit in limits.items():
            yield from director.create(fitting)
            bits = range(widths[name])
            beyond = {limit + 1} | {1 << one | 1 << other for one in bits for other in bits}
            for value in sorted(value for value in beyond if value > limit):
                yield from create_with(name, value)
            if name != "job_slot_base":
                yield from create_with(name, 0)
            director.golden.destroy_job(fitting.number)
            (answer,) = yield from director.each([fitting.join(0)])
            assert (answer.type, answer.words[0]) == (REFUSED, BAD_JOB)

    def just_enough() -> Actions[None]:
        for number in range(build["jobs"]):
            largest = Job(number=number, workers=workers, lanes=lanes, slots=slots, key=number)
            yield from director.create(largest)
            yield from reduce_round(director, largest, choose, 0, slots - 1)
            yield from director.destroy(largest)

    def every_number_of_lanes() -> Actions[None]:
        for count in range(1, lanes + 1):
            job = Job(number=0, workers=1, lanes=count, slots=1, key=count)
            yield from director.create(job)
            yield from reduce_round(director, job, choose, 0)
            beyond = [lane for lane in range(lanes) if lane >= count]
            frames = [job.data(0, 0, 1, {lane: [7] * 64}) for lane in beyond]
            assert (yield from director.each(frames)) == []
        yield from director.destroy(job)

    def forgets() -> Actions[None]:
        """Check that a create forgets every worker, and begins every slot anew."""
        for first_round in (0, 77):
            job = Job(workers=workers, lanes=1, slots=slots, first_round=first_round, key=5)
            yield from director.create(job)
            yield from director.create(job, join=False)
            frames = [job.data(worker, 0, 0) for worker in range(workers)]
            assert (yield from director.each(frames)) == []
            alone = Job(workers=1, lanes=1, slots=slots, first_round=first_round, key=6)
            yield from director.create(alone)
            for slot in range(slots):
                yield from reduce_round(director, alone, choose, 0, slot)
        yield from director.destroy(alone)

    def for_nobody() -> Actions[None]:
        yield from director.create(fitting)
        bits = range(widths["job_index"])
        indices = {build["jobs"]} | {1 << one | 1 << other for one in bits for other in bits}
        for index in sorted(index for index in indices if index >= build["jobs"]):
            for command in Command:
                yield from write("job_index", index)
                yield WriteRegister(address_of("job_command"), command, refused=True)
                yield from check_reason(Reason.INDEX)
        yield from write("job_index", fitting.number)
        yield WriteRegister(address_of("job_command"), 0, refused=True)
        yield from check_reason(Reason.COMMAND)
        assert not (yield ReadRegister(address_of("job_busy")))
        assert not (yield ReadRegister(address_of("job_command")))
        yield from reduce_round(director, fitting, choose, 0)

    def without_parent() -> Actions[None]:
        """Check that a job that has no parent, or has gone, joins none: nothing is sent."""
        above = replace(fitting, parent=ParentJob())
        for job, gone in ((fitting, True), (above, True), (fitting, False)):
            yield from director.create(job)
            if gone:
                yield from director.destroy(job)
            yield from write("job_index", job.number)
            yield from write("job_command", Command.JOIN_PARENT)
            yield from wait()
            yield from check_reason(Reason.DISABLED if gone else Reason.NO_PARENT)
            assert (yield Play([])) == []

    def while_busy() -> Actions[None]:
        """Check that what is commanded meanwhile is refused, and not done later."""
        other = Job(number=0, workers=1, lanes=1, slots=1, slot_base=slots - 1, key=9)
        yield from director.create(other, join=False)
        yield from write("job_command", Command.CREATE)
        for _ in range(4):
            yield WriteRegister(address_of("job_index"), fitting.number, refused=True)
            yield WriteRegister(address_of("job_command"), Command.DESTROY, refused=True)
        yield from wait()
        yield from check_reason(Reason.NONE)
        yield from reduce_round(director, fitting, choose, 1)
        yield from director.each(other.joins())
        yield from reduce_round(director, other, choose, 0)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from too_much()
        yield from just_enough()
        yield from every_number_of_lanes()
        yield from forgets()
        yield from without_parent()
        yield from for_nobody()
        yield from while_busy()
        yield from director.check_counters()

    perform(engine, scenario())


def check_last_busy_cycle(engine: VerilatedEngine, build: Build) -> None:
    """Check that a command in another's last busy cycle is not done, and that one behind it is."""
    director = Director(**build)
    job = Job(workers=2, lanes=1, slots=3)
    busy, enabled = address_of("job_busy"), address_of("job_enabled")

    def begin_create() -> None:
        """So that it takes the same time every time."""
        engine.run(20 + engine.cycles % 2)
        engine.write(address_of("job_command"), Command.CREATE)

    perform(engine, director.configure())
    perform(engine, director.create(job))
    begin_create()
    # Accesses are a cycle each.
    lasts = next(cycle for cycle in range(1000) if not engine.read(busy))
    for early in range(3):
        begin_create()
        for _ in range(lasts - early):
            assert engine.read(busy)
        # The cycle after the last busy one is free.
        with suppress(WriteRefused) if early > 0 else nullcontext():
            engine.write(address_of("job_command"), Command.DESTROY)
        engine.run(2 * lasts)
        assert not engine.read(busy)
        assert engine.read(enabled) == (early > 0), f"{early} cycles before the end"


def check_addresses(engine: VerilatedEngine, build: Build) -> None:
    """Any address but 0.0.0.0 is a parent, any multicast address a group: one for each bit.

    The parent's numbers of job and worker have all of theirs.
    """
    director = Director(**build)

    def address(number: int) -> str:
        return str(IPv4Address(number))

    def scenario() -> Actions[None]:
        yield from director.configure()
        for bit in range(32):
            # Its key has each bit set and each cleared.
            key = 1 << 2 * bit if bit % 2 else ~(3 << 2 * bit) % 2**64
            to = ResultGroup(address(14 << 28 | 1 << bit % 28), 1 << bit % 16, key)
            group = Job(workers=2, group=to, key=bit)
            yield from director.create(group)
            blocks = {0: [bit] * 64}
            yield from director.each([group.data(worker, 0, 0, blocks) for worker in range(2)])
            number = 1 << bit % 8
            parent = ParentJob(
                address=address(1 << bit), port=1 << bit % 16, number=number, worker=number ^ 255
            )
            below = Job(workers=1, parent=parent, key=bit)
            yield from director.create(below)
            yield from director.join_parent(below)
            yield from director.each([below.joined_above(), below.data(0, 0, 0, blocks)])
            # Nothing comes from 0.0.0.0/8, but traffic to it is the operator's affair.
            assert (yield from director.check_parent_joined(below)) == (bit >= 24)
            yield from director.each([below.down(0, 0, blocks)])
        yield from director.check_counters()

    perform(engine, scenario())


def check_own_addresses(engine: VerilatedEngine, build: Build) -> None:
    """Engines of random addresses: what they take for theirs, and what they send from there."""
    choose = random.Random(8)
    job = Job(workers=1, lanes=1, slots=1)
    for _ in range(40):
        # All ones and all zeros among the octets, for the sums of header checksums.
        octets = [choose.choice([0, 255, choose.randrange(256)]) for _ in range(10)]
        mac, address = bytes([octets[0] & 0xFE, *octets[1:6]]), bytes(octets[6:])
        port = choose.randrange(1, 2**16 - build["jobs"])
        director = Director(**build, mac=mac.hex(":"), address=str(IPv4Address(address)), port=port)
        engine.reset()

        def here(
            frame: bytes, mac: bytes = mac, address: bytes = address, port: int = port
        ) -> bytes:
            """Return the frame to this engine."""
            frame = (
                mac + frame[6:30] + address + frame[34:36] + port.to_bytes(2, "big") + frame[38:]
            )
            return repaired(frame)

        def scenario(director: Director = director) -> Actions[None]:
            yield from director.configure()
            yield from director.create(job, join=False)
            yield from director.each_frame(map(here, job.joins()))
            yield from director.each_frame([here(job.data(0, 0, 0, {0: [3] * 64}))])
            yield from director.each_frame([job.join(0), here(job.probe(0, 0, 0))])
            yield from director.check_counters()

        perform(engine, scenario())


def check_reset(engine: VerilatedEngine, build: Build) -> None:
    """Check that a reset in the middle of everything leaves an engine like a new one."""
    job = Job(number=1, workers=2, lanes=2, slots=2, slot_base=3)
    before = Director(**build)
    perform(engine, before.configure())
    perform(engine, before.create(job))
    busy = [
        job.data(worker, slot, 0, {lane: [lane + worker] * 64 for lane in range(job.lanes)})
        for slot in range(job.slots)
        for worker in range(job.workers)
    ]
    # Queues filled, a frame half sent, a round half done.
    engine.play(busy * 4 + [job.data(0, 0, 1)], Stimulus(ready_share=0.0, drain=False))
    engine.play([job.join(1)] * 3 + [job.probe(1, 0, 1)], Stimulus(ready_share=0.3, drain=False))
    engine.reset()
    # Nothing comes after it.
    assert engine.run(3000) == []
    for register in HELD:
        assert engine.read(register.address) == 0, register.name
    after = Director(**build)
    perform(engine, after.configure())
    perform(engine, after.check_counters())
    perform(engine, after.each([job.join(0), busy[0]]))
    for case in list(CASES.values())[:3]:
        perform(engine, after.create(job))
        perform(engine, case(after, job, random.Random(2)))
    perform(engine, after.check_counters())


def check_reset_with_full_queues(engine: VerilatedEngine, build: Build) -> None:
    """Check that a reset with anything queued, at any moment, costs no slot: each works again.

    The memories' content outlives a reset. The network takes nothing, so that all queues fill up; a
    destroy is under way.
    """
    choose = random.Random(5)
    job = Job(
        workers=4,
        lanes=1,
        slots=build["slots"],
        first_round=0,
        parent=ParentJob() if build["jobs"] < 4 else None,
    )
    alone = replace(job, parent=None)

    def rounds(of: Job, step: int) -> list[bytes]:
        return [
            of.data(worker, slot, step, {0: [worker] * 64})
            for slot in range(of.slots)
            for worker in range(of.workers)
        ]

    first, second = rounds(job, 0), rounds(job, 1)
    asked = [job.probe(worker, slot, 0) for worker in range(4) for slot in range(3)]
    everything = first + asked + [job.join(0)] * 9 + second + [job.join(1, key=1)] * 9
    for share in (1.0, *(choose.random() for _ in range(4))):
        director = Director(**build)
        perform(engine, director.configure())
        perform(engine, director.create(job, join=False))
        engine.play(job.joins())
        engine.play(everything[: round(share * len(everything))], STUCK)
        engine.write(address_of("job_command"), Command.JOIN_PARENT)
        # The command waits for nothing.
        while engine.read(address_of("job_busy")):
            pass
        engine.write(address_of("job_command"), Command.DESTROY)
        for _ in range(choose.randrange(100)):
            engine.read(address_of("identity"))
        engine.reset()
        director = Director(**build)
        perform(engine, director.configure())
        perform(engine, director.create(alone))
        for step in range(2):
            perform(engine, director.flood(rounds(alone, step)))
        perform(engine, director.check_counters())
        engine.reset()


def check_stuck_results(engine: VerilatedEngine, build: Build) -> None:
    """Results of a job wait for the network while its slots are given to another job."""
    choose = random.Random(9)
    old = Job(number=0, workers=4, lanes=3, slots=4, first_round=0)
    new = Job(number=1, workers=2, lanes=3, slots=4, first_round=0, key=7)
    director = Director(**build)
    golden = director.golden

    def rounds(job: Job) -> list[bytes]:
        return [
            job.data(
                worker,
                slot,
                0,
                {lane: [choose.getrandbits(16) for _ in range(64)] for lane in range(job.lanes)},
                [worker + 1] * job.lanes,
            )
            for slot in range(job.slots)
            for worker in range(job.workers)
        ]

    perform(engine, director.configure())
    perform(engine, director.create(old))
    frames = rounds(old)
    of_old = [answer for frame in frames for answer in golden.receive(frame)]
    network = SlowNetwork(engine)
    network.sent += engine.play(frames, STUCK)
    network.perform(director.destroy(old))
    network.perform(director.create(new, join=False))
    frames = new.joins() + rounds(new)
    of_new = [answer for frame in frames for answer in golden.receive(frame)]
    network.sent += engine.play(frames, STUCK)
    network.sent += engine.play([])
    sent = Counter(network.sent)
    # Results of the job that has gone may be sent or not, but nothing of the other job in them.
    strange = sent - Counter(of_old) - Counter(of_new)
    assert not strange, [frame[:64].hex(" ") for frame in strange]
    lost = Counter(of_new) - sent
    assert not lost, [frame[:64].hex(" ") for frame in lost]


def check_behind_a_join(engine: VerilatedEngine, build: Build) -> None:
    """Check that a frame right after a JOIN that moves its worker is judged by the new address."""
    job = Job(workers=2, lanes=1, slots=1)
    moved = replace(job, first_port=job.first_port + 7)
    director = Director(**build)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        for here, there in ((job, moved), (moved, job)) * 2:
            # Back to back, so that each is looked up as soon as can be.
            frames = [there.join(0), here.probe(0, 0, 0), there.probe(0, 0, 0), here.probe(0, 0, 0)]
            yield from director.flood(frames)
        return (yield from director.check_counters())

    counters = perform(engine, scenario())
    assert counters["bad_address"] == 8
    assert counters["probes"] == 4
