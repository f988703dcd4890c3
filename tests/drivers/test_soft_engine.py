"""The software engine against the golden model: the same frames out, the same counters."""

import random

import pytest
from tests.drivers.random_frames import FrameSource
from tests.drivers.virtual_job import (
    ENGINE_MAC,
    configure,
    counters_of,
    create_job,
    write_registers,
)

from afflux_drivers.soft_engine import SoftEngine
from afflux_drivers.ticket import JobTicket
from afflux_hdl import registers, wire
from afflux_sim.golden import GoldenEngine

# (N, F, slots, key, r0): small enough that rounds complete, the last of them close to the wrap.
_JOBS = {
    "one worker": [(1, 1, 1, 5, 0)],
    "pair": [(2, 4, 2, 6, 0xFFFF_FFFE)],
    "three jobs": [(3, 16, 2, 7, 9), (5, 2, 1, 8, 0x7FFF_FFFF), (2, 5, 3, 9, 0xFFFF_FFFF)],
    "all workers": [(64, 3, 1, 10, 1)],
}


def tickets_of(jobs: list[tuple[int, int, int, int, int]]) -> list[JobTicket]:
    return [
        JobTicket("x", wire.PORT, job, key, first, workers, lanes, slots, 11 + job, "soft")
        for job, (workers, lanes, slots, key, first) in enumerate(jobs)
    ]


def compare_engines(engine: SoftEngine, tickets: list[JobTicket], seed: int, frames: int) -> None:
    """Plays random frames to both. Raises AssertionError at the first difference."""
    golden = GoldenEngine(slots=64, mac=ENGINE_MAC, address="10.0.0.1", port=wire.PORT)
    configure(engine)

    def create(ticket: JobTicket) -> None:
        create_job(engine, ticket, slot_base=10 * ticket.job)
        golden.create_job(
            ticket.job,
            key=ticket.key,
            workers=ticket.workers,
            lanes=ticket.lanes,
            slot_base=10 * ticket.job,
            slot_count=ticket.slots,
            round=ticket.round,
            credit=ticket.credit,
        )

    for ticket in tickets:
        create(ticket)
    generator = random.Random(seed)

    def state(ticket: JobTicket, number: int) -> tuple[int, int]:
        slot = golden.slot(ticket.job, number)
        return slot.round, slot.seen

    source = FrameSource(generator, tickets, state)
    joins = [source.join(ticket, worker) for ticket in tickets for worker in range(ticket.workers)]
    recent = []
    for number in range(frames):
        if number < len(joins):
            frame = joins[number]
        elif recent and generator.random() < 0.05:
            frame = generator.choice(recent)
        else:
            frame = source.frame()
        recent = [frame, *recent[:20]]
        assert engine.play([frame]) == golden.receive(frame), f"frame {number} of seed {seed}"
        if number == frames * 2 // 3:
            # A new run of the last job: everything of the old one is forgotten.
            ticket = tickets[-1]
            create(ticket)
            for worker in range(ticket.workers):
                frame = source.join(ticket, worker)
                assert engine.play([frame]) == golden.receive(frame)
    counters = counters_of(engine)
    assert counters == dict(golden.counters)
    # Or else nothing much was compared.
    workers = max(ticket.workers for ticket in tickets)
    assert counters["rounds"] > frames / (10 * workers)


@pytest.mark.parametrize("name", _JOBS)
@pytest.mark.parametrize("seed", range(3))
def test_equals_golden_on_random_frames(name, seed):
    engine = SoftEngine(slots=64)
    compare_engines(engine, tickets_of(_JOBS[name]), seed, 1500)


def test_random_frames_reach_every_counter():
    engine = SoftEngine(slots=64)
    compare_engines(engine, tickets_of(_JOBS["three jobs"]), 77, 4000)
    never = {name for name, value in counters_of(engine).items() if value == 0}
    # A software engine has no MAC and no queue that could overflow.
    assert never == {"mac_error", "receive_overflow", "replays_dropped", "replies_dropped"}


def test_registers_follow_the_map():
    engine = SoftEngine(workers=8, lanes=4, jobs=2, slots=16)
    for name, value in (
        ("identity", registers.IDENTITY),
        ("protocol", wire.VERSION),
        ("build_workers", 8),
        ("build_lanes", 4),
        ("build_jobs", 2),
        ("build_slots", 16),
        ("job_busy", 0),
    ):
        assert engine.read(registers.address_of(name)) == value
    for register in registers.REGISTERS:
        before = engine.read(register.address)
        if register.name != "job_command":
            engine.write(register.address, 0xFFFF_FFFF)
        writable = register.access is registers.Access.READ_WRITE
        if register.name == "job_command":
            assert before == 0
        else:
            full = (1 << register.width) - 1
            assert engine.read(register.address) == (full if writable else before), register.name


def test_reading_a_counter_latches_its_upper_word():
    engine = SoftEngine()
    engine._counters["frames_in"] = 0x1_FFFF_FFFF
    address = registers.counter_address("frames_in")
    assert engine.read(address) == 0xFFFF_FFFF
    engine.play([b""])
    assert engine.read(address + 4) == 1
    assert engine.read(address) == 0
    assert engine.read(address + 4) == 2


def test_unmapped_addresses_read_zero_and_ignore_writes():
    engine = SoftEngine()
    engine.write(0xFFC, 1)
    assert engine.read(0xFFC) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("job_index", 2),
        ("job_workers", 0),
        ("job_workers", 9),
        ("job_lanes", 5),
        ("job_lanes", 0),
        ("job_slot_count", 17),
        ("job_slot_count", 0),
        ("job_slot_base", 16),
    ],
)
def test_refuses_a_job_it_was_not_built_for(name, value):
    engine = SoftEngine(workers=8, lanes=4, jobs=2, slots=16)
    good = {"job_workers": 8, "job_lanes": 4, "job_slot_count": 16}
    write_registers(engine, {**good, name: value})
    with pytest.raises(ValueError, match=str(value)):
        write_registers(engine, {"job_command": registers.Command.CREATE})


@pytest.mark.parametrize("limits", [{"workers": 65}, {"lanes": 0}, {"jobs": 257}, {"slots": 0}])
def test_refuses_to_be_built_out_of_range(limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        SoftEngine(**limits)
