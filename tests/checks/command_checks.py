"""Checks of what commands do and refuse: at every cycle of one, for slots of others, in flight."""

import random
from dataclasses import replace

from afflux_hdl.contract.registers import (
    REGISTERS,
    Access,
    Command,
    Reason,
    WriteRefused,
    address_of,
)
from afflux_sim.golden.frames import GroupAddress
from afflux_sim.golden.job_table import CommandRefused
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Actions, Build, Director, ReadRegister, WriteRegister
from tests.scenarios.golden_device import Engine
from tests.scenarios.job_frames import Job, ParentJob, ResultGroup
from tests.scenarios.performer import perform

__all__ = [
    "check_busy_writes",
    "check_joined_before",
    "check_reasons",
    "check_settled_workers",
    "check_unasked_fields",
    "check_uncommanded_writes",
]

PARAMETERS = [
    register
    for register in REGISTERS
    if register.name.startswith("job_") and register.access is not Access.READ_ONLY
]
NOT_DRAINED = Stimulus(drain=False)


def check_busy_writes(engine: VerilatedEngine, build: Build) -> None:
    """Every parameter in every cycle of a create: refused, without effect, and said to be so."""
    director = Director(**build)
    choose = random.Random(5)
    last = build["slots"] - 1
    other = Job(number=0, workers=2, lanes=1, slots=last, key=1)
    job = Job(
        number=1, workers=2, lanes=2, slots=1, slot_base=last, group=ResultGroup("239.1.2.3", 4701)
    )
    busy, command = address_of("job_busy"), address_of("job_command")
    readable = [each for each in PARAMETERS if each.access is Access.READ_WRITE]

    def begin_create() -> None:
        """So that it takes the same time every time."""
        engine.run(20 + engine.cycles % 2)
        engine.write(command, Command.CREATE)

    def refuses(address: int, value: int) -> bool:
        try:
            engine.write(address, value)
        except WriteRefused:
            return True
        return False

    perform(engine, director.configure())
    perform(engine, director.create(other))
    half = [other.data(0, slot, 0, {0: [slot + 1] * 64}) for slot in range(other.slots)]
    perform(engine, director.each(half))
    perform(engine, director.create(job))
    # Accesses are a cycle each.
    begin_create()
    lasts = next(cycle for cycle in range(10_000) if not engine.read(busy))
    assert lasts > 20
    before = {each.name: engine.read(each.address) for each in readable}
    for first in range(len(PARAMETERS)):
        begin_create()
        for cycle in range(lasts):
            each = PARAMETERS[(first + cycle) % len(PARAMETERS)]
            value = Command.DESTROY if each.address == command else choose.getrandbits(32)
            assert refuses(each.address, value), f"{each.name} in cycle {cycle} of {lasts}"
        assert not engine.read(busy)
        assert engine.read(address_of("job_reason")) == Reason.NONE
        assert engine.read(address_of("job_enabled"))
        assert {each.name: engine.read(each.address) for each in readable} == before
    # Nothing of what was written has come into the job, nor into its neighbour's slots.
    director.golden.create_job(
        job.number,
        key=job.key,
        workers=job.workers,
        lanes=job.lanes,
        slot_base=job.slot_base,
        slot_count=job.slots,
        round=job.first_round,
        credit=job.credit,
        group=GroupAddress("239.1.2.3", 4701),
        group_key=ResultGroup("239.1.2.3", 4701).key,
    )
    perform(engine, director.each(job.joins()))
    perform(engine, director.each([job.data(worker, 0, 0, {1: [7] * 64}) for worker in (0, 1)]))
    rest = [other.data(1, slot, 0, {0: [7] * 64}) for slot in range(other.slots)]
    perform(engine, director.each(rest))
    perform(engine, director.check_counters())


def check_reasons(engine: Engine, build: Build, creates: int = 300) -> None:
    """Create random jobs, in one another's way or beyond the limits: refused as they should."""
    director = Director(**build)
    golden = director.golden
    choose = random.Random(6)
    slots = build["slots"]
    seen = dict.fromkeys(Reason, 0)

    def draw(most: int, width: int) -> int:
        """Return 1 to `most`, most often; else any value of that width, or one next to a limit."""
        if choose.random() < 0.9:
            return choose.randint(1, most)
        near = [0, most + 1, 2 * most, (1 << width) - 1]
        return choose.choice([*near, choose.getrandbits(width)]) % (1 << width)

    def one() -> Actions[None]:
        number = draw(build["jobs"], 8) - 1 if choose.random() < 0.9 else choose.getrandbits(8)
        number %= 256
        short = max(1, slots // 3)
        count = draw(short if choose.random() < 0.9 else slots, 17)
        base = choose.randrange(slots) if choose.random() < 0.95 else choose.getrandbits(16)
        group = choose.choice([0, 0, 0xE0000001, 0xEFFFFFFF, choose.getrandbits(32)])
        workers, lanes = draw(build["workers"], 8), draw(build["lanes"], 8)
        values = {
            "job_workers": workers,
            "job_lanes": lanes,
            "job_slot_base": base,
            "job_slot_count": count,
            "job_group_address": group,
            "job_index": number,
        }
        for name, value in values.items():
            yield WriteRegister(address_of(name), value)
        reason = Reason.NONE
        try:
            golden.create_job(
                number,
                key=0,
                workers=workers,
                lanes=lanes,
                slot_base=base,
                slot_count=count,
                round=0,
                credit=1,
                group=GroupAddress(".".join(map(str, group.to_bytes(4, "big"))), 1)
                if group
                else None,
            )
        except CommandRefused as refused:
            reason = Reason(refused.reason)
        at_once = reason == Reason.INDEX
        yield WriteRegister(address_of("job_command"), Command.CREATE, refused=at_once)
        while (yield ReadRegister(address_of("job_busy"))):
            pass
        got = yield ReadRegister(address_of("job_reason"))
        assert got == reason, f"{values}: {Reason(got)!r}, not {reason!r}"
        seen[reason] += 1
        for index in range(build["jobs"]):
            yield WriteRegister(address_of("job_index"), index)
            enabled = yield ReadRegister(address_of("job_enabled"))
            assert enabled == (golden.jobs[index] is not None), f"job {index} after {values}"

    def scenario() -> Actions[None]:
        yield from director.configure()
        for _ in range(creates):
            yield from one()

    perform(engine, scenario())
    never = {Reason.COMMAND, Reason.DISABLED, Reason.NO_PARENT}
    assert all(seen[reason] for reason in set(Reason) - never), seen


def check_joined_before(engine: VerilatedEngine, build: Build) -> None:
    """Check that what JOINED tells a run that ends holds neither for the next run nor without."""
    job = Job(workers=1, parent=ParentJob())
    director = Director(**build)
    taken = 0
    for command in (Command.CREATE, Command.DESTROY):
        for cycles in range(24):
            perform(engine, director.configure())
            perform(engine, director.create(job))
            perform(engine, director.join_parent(job))
            before = perform(engine, director.read_counters())["joins"]
            engine.play([job.joined_above()], NOT_DRAINED)
            engine.run(cycles)
            engine.write(address_of("job_command"), command)
            while engine.read(address_of("job_busy")):
                pass
            joined = engine.read(address_of("job_parent_joined"))
            taken += perform(engine, director.read_counters())["joins"] - before
            assert not joined, f"{command.name} {cycles} cycles behind JOINED"
    # Some came before the command, some after it.
    assert 0 < taken < 48, taken


def check_settled_workers(engine: Engine, build: Build) -> None:
    """Which workers of each job may join from where, before and after the first contribution."""
    director = Director(**build)
    jobs = build["jobs"]

    def scenario() -> Actions[None]:
        yield from director.configure()
        for number in range(jobs):
            job = Job(number=number, workers=3, lanes=1, slots=2, first_round=5)
            yield from _settle(director, job, replace(job, number=(number + 1) % jobs))
        yield from director.check_counters()

    perform(engine, scenario())


def _settle(director: Director, job: Job, other_host: Job) -> Actions[None]:
    """Let a job's workers join from where they are, and from another job's hosts."""
    elsewhere = replace(job, first_port=job.first_port + 7)

    def from_host(worker: int) -> bytes:
        """Return a JOIN from the address of another job's worker."""
        return other_host.join(worker, job=job.number)

    def behind_a_router(worker: int) -> bytes:
        """Return a JOIN that has passed a router, which has a MAC address of its own."""
        frame = job.join(worker)
        return frame[:6] + bytes.fromhex("020000000099") + frame[12:]

    # Before the first contribution a JOIN replaces what was known.
    yield from director.create(job, join=False)
    moves = [elsewhere.join(0), from_host(1), job.join(0), job.join(1)]
    answers = yield from director.each(moves)
    assert [answer.type for answer in answers] == [11] * 4
    # A probe does not begin the run, nor does what is refused.
    yield from director.each([job.probe(0, 0, 0), job.data(0, 0, 0, key=1)])
    yield from director.each([elsewhere.join(0), job.join(0)])
    # A contribution does, even for a JOIN right after it.
    flood = [job.data(0, 0, 0, {0: [1] * 64}), elsewhere.join(0), from_host(1), job.join(2)]
    got = yield from director.flood(flood)
    assert sorted(answer.type for answer in got) == [11, 12, 12]
    for wrong in (elsewhere.join(0), from_host(0), elsewhere.join(1), from_host(2)):
        (answer,) = yield from director.each([wrong])
        assert (answer.type, answer.words[:2]) == (12, [5, 2])
    # Without a checksum what seems wrong in a JOIN may be damage: no refusal is sent.
    for wrong in (elsewhere.join(0), from_host(1)):
        damaged = wrong[:40] + bytes(2) + wrong[42:]
        assert (yield from director.each([damaged])) == []
    # The same address and port: as ever, and results go to the new MAC address.
    yield from director.each([job.join(0), behind_a_router(1)])
    yield from director.each([job.data(worker, 0, 0, {0: [1] * 64}) for worker in (1, 2)])
    yield from director.each([job.data(0, 0, 1), elsewhere.data(0, 1, 0)])
    # Another job, and the next run of the same one, begin anew.
    yield from director.create(replace(other_host, slot_base=job.slots))
    yield from director.create(job)
    yield from director.each([elsewhere.join(0), job.join(0)])
    # Workers may move, where the operator says so.
    moving = replace(job, may_move=True)
    yield from director.create(moving)
    yield from director.each([moving.data(0, 0, 0)])
    back = yield from director.flood([moving.data(1, 0, 0), elsewhere.join(0), from_host(1)])
    assert [answer.type for answer in back] == [11, 11]
    yield from director.each([elsewhere.data(0, 1, 0), moving.data(2, 0, 0)])
    for each in (job, other_host):
        yield from director.destroy(each)


def check_uncommanded_writes(engine: Engine, build: Build) -> None:
    """Write every parameter after a create: nothing changes until there is another command."""
    choose = random.Random(8)
    director = Director(**build)
    jobs = (
        Job(number=0, workers=2, lanes=1, slots=2, group=ResultGroup("239.1.2.3", 4701)),
        Job(number=1, workers=2, lanes=1, slots=2, slot_base=2, parent=ParentJob()),
        Job(number=2, workers=2, lanes=1, slots=2, slot_base=4),
    )

    def scenario() -> Actions[None]:
        yield from director.configure()
        for job in jobs:
            yield from director.create(job)
            for each in PARAMETERS:
                if each.name != "job_command":
                    yield WriteRegister(each.address, choose.getrandbits(each.width))
            # Whatever is written meanwhile, a job's results go where it was told.
            for step in range(2):
                for slot in range(job.slots):
                    for worker in range(job.workers):
                        frame = job.data(worker, slot, step, {0: [step + worker] * 64})
                        yield from director.each([frame])
                    if job.parent:
                        yield from director.each([job.down(slot, step, {0: [step] * 64})])
        for job in jobs:
            yield from director.each([job.probe(0, slot, 1) for slot in range(job.slots)])
        yield from director.check_counters()

    perform(engine, scenario())


def check_unasked_fields(engine: Engine, build: Build) -> None:
    """Set each bit of each field of a JOIN that means nothing there, and of a question's slot."""
    director = Director(**build)
    job = Job(workers=2, lanes=1, slots=2)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        for name, width in UNASKED.items():
            for bit in range(width):
                yield from director.each([job.join(1, **{name: 1 << bit})])
        for bit in range(UNASKED["slot"]):
            yield from director.each([job.probe(0, 1 << bit, 0), job.data(0, 1 << bit, 0)])
        yield from director.check_counters()

    perform(engine, scenario())


UNASKED = {"slot": 16, "round": 32, "present": 16}
"""Fields of the header of a JOIN that are copied at most, and their bits."""
