"""The software engine against the golden model: the same frames out, the same counters."""

import random
from collections.abc import Collection

import pytest

from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.frames import mac_of
from afflux_hdl.contract import registers, wire
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import Endpoint, Group
from afflux_sim.golden.state import Parent as GoldenParent
from tests.support.drivers.random_frames import FrameSource
from tests.support.drivers.virtual_job import (
    ENGINE_MAC,
    Parent,
    configure,
    counters_of,
    create_job,
    write_registers,
)

# (N, F, slots, key, r0): small enough that rounds complete, the last of them close to the wrap.
_JOBS = {
    "one worker": [(1, 1, 1, 5, 0)],
    "pair": [(2, 4, 2, 6, 0xFFFF_FFFE)],
    "three jobs": [(3, 16, 2, 7, 9), (5, 2, 1, 8, 0x7FFF_FFFF), (2, 5, 3, 9, 0xFFFF_FFFF)],
    "all workers": [(64, 3, 1, 10, 1)],
}


# A software engine has no clock and no queues.
_NEVER = ("build_time", "receive_level", "receive_peak", "delivery_level", "delivery_peak")

# In "three jobs", the second has a group, the third a parent; in "pair", the job has both.
_GROUPS = {"three jobs": {1}, "pair": {0}}
_PARENTS = {"three jobs": {2}, "pair": {0}}
_PARENT_ADDRESS = 0x0A00_0009


def tickets_of(
    jobs: list[tuple[int, int, int, int, int]], groups: Collection[int] = ()
) -> list[JobTicket]:
    return [
        JobTicket(
            *("x", wire.PORT, job, key, first, workers, lanes, slots, 11 + job, "soft"),
            *(("239.255.128.7", 4900 + job) if job in groups else ("", 0)),
        )
        for job, (workers, lanes, slots, key, first) in enumerate(jobs)
    ]


def parents_of(tickets: list[JobTicket], children: Collection[int]) -> dict[int, Parent]:
    """Parents for some of the jobs."""
    endpoint = mac_of(_PARENT_ADDRESS), _PARENT_ADDRESS, 4800
    return {
        ticket.job: Parent(endpoint, 200 + ticket.job, 3, ticket.key << 40 | 77)
        for ticket in tickets
        if ticket.job in children
    }


def read(engine: Engine, name: str) -> int:
    return engine.read(registers.address_of(name))


def compare_debug_registers(engine: Engine, golden: GoldenEngine, ticket: JobTicket) -> None:
    """Check that debug registers show of slots and workers what the golden model holds."""
    job = golden.jobs[ticket.job]
    assert job is not None
    for number, slot in enumerate(job.slots):
        write_registers(engine, {"debug_slot": job.slot_base + number})
        assert read(engine, "debug_round") == slot.round
        seen = read(engine, "debug_seen_high") << 32 | read(engine, "debug_seen_low")
        assert seen == slot.seen
        assert read(engine, "debug_phase") == (slot.seen == job.full) | slot.waiting << 1
        for version, held in enumerate(slot.versions):
            want = held.held << 17 | held.conflict << 16 | held.present
            assert read(engine, f"debug_version_{version}") == want
    for worker in range(64):
        write_registers(engine, {"debug_worker": ticket.job << 8 | worker})
        high = read(engine, "debug_peer_mac_high")
        peer = job.joined.get(worker)
        assert high >> 16 == (peer is not None)
        if peer is None:
            continue
        mac = (high & 0xFFFF) << 32 | read(engine, "debug_peer_mac_low")
        assert mac.to_bytes(6, "big") == peer.mac
        assert read(engine, "debug_peer_address").to_bytes(4, "big") == peer.packed_address
        assert read(engine, "debug_peer_port") == peer.port


def golden_parent(parent: Parent) -> GoldenParent:
    mac, address, port = parent.endpoint
    host = ".".join(map(str, address.to_bytes(4, "big")))
    return GoldenParent(Endpoint(mac, host, port), parent.job, parent.worker, parent.key)


def compare_engines(
    engine: Engine,
    tickets: list[JobTicket],
    seed: int,
    frames: int,
    parents: dict[int, Parent] | None = None,
) -> None:
    """Plays random frames to both. Raises AssertionError at the first difference."""
    above = parents or {}
    golden = GoldenEngine(slots=64, mac=ENGINE_MAC, address="10.0.0.1", port=wire.PORT)
    configure(engine)

    def create(ticket: JobTicket) -> None:
        parent = above.get(ticket.job)
        create_job(engine, ticket, slot_base=10 * ticket.job, parent=parent)
        golden.create_job(
            ticket.job,
            key=ticket.key,
            workers=ticket.workers,
            lanes=ticket.lanes,
            slot_base=10 * ticket.job,
            slot_count=ticket.slots,
            round=ticket.round,
            credit=ticket.credit,
            group=Group(ticket.group, ticket.group_port) if ticket.group else None,
            parent=golden_parent(parent) if parent is not None else None,
        )
        if parent is not None:
            write_registers(
                engine,
                {"job_index": ticket.job, "job_command": registers.Command.JOIN_PARENT},
            )
            assert engine.play([]) == [golden.join_parent(ticket.job)]

    for ticket in tickets:
        create(ticket)
    generator = random.Random(seed)

    def state(ticket: JobTicket, number: int) -> tuple[int, int, bool]:
        slot = golden.slot(ticket.job, number)
        return slot.round, slot.seen, slot.waiting

    source = FrameSource(generator, tickets, state, above)
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
    for ticket in tickets:
        write_registers(engine, {"job_index": ticket.job})
        assert read(engine, "job_enabled") == 1
        assert read(engine, "job_parent_joined") == golden.has_joined_parent(ticket.job)
        compare_debug_registers(engine, golden, ticket)
    # Or else nothing much was compared.
    workers = max(ticket.workers for ticket in tickets)
    assert counters["rounds"] > frames / (10 * workers)


@pytest.mark.parametrize("name", _JOBS)
@pytest.mark.parametrize("seed", range(3))
def test_equals_golden_on_random_frames(name, seed):
    tickets = tickets_of(_JOBS[name], _GROUPS.get(name, ()))
    parents = parents_of(tickets, _PARENTS.get(name, ()))
    compare_engines(SoftEngine(slots=64), tickets, seed, 1500, parents)


def test_random_frames_reach_every_counter():
    engine = SoftEngine(slots=64)
    tickets = tickets_of(_JOBS["three jobs"], _GROUPS["three jobs"])
    compare_engines(engine, tickets, 77, 4000, parents_of(tickets, _PARENTS["three jobs"]))
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
        ("build_version", registers.RELEASE),
        *((name, 0) for name in _NEVER),
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


def test_nothing_is_seen_of_what_does_not_exist():
    engine = SoftEngine(jobs=2, slots=16)
    names = [r.name for r in registers.REGISTERS if r.name.startswith("debug_")]
    looked_at = {"debug_slot", "debug_worker"}
    for slot, worker in ((0, 0), (15, 0x13F), (16, 0x200), (0x7FFF, 0xFFFF)):
        write_registers(engine, {"debug_slot": slot, "debug_worker": worker})
        for name in set(names) - looked_at:
            assert read(engine, name) == 0, name
    for index in (0, 1, 2, 255):
        write_registers(engine, {"job_index": index})
        assert read(engine, "job_enabled") == read(engine, "job_parent_joined") == 0
        # Without a parent there is nobody to join.
        write_registers(engine, {"job_command": registers.Command.JOIN_PARENT})
        assert engine.play([]) == []


def test_a_parent_port_beyond_the_last_comes_after_0():
    engine = SoftEngine()
    configure(engine, port=0xFFFF)
    tickets = tickets_of([(1, 1, 1, 5, 0), (1, 1, 1, 6, 0)])
    parents = parents_of(tickets, {0, 1})
    for ticket in tickets:
        create_job(engine, ticket, slot_base=ticket.job, parent=parents[ticket.job])
        write_registers(engine, {"job_command": registers.Command.JOIN_PARENT})
    ports = [int.from_bytes(frame[34:36], "big") for frame in engine.play([])]
    assert ports == [0, 1]


def test_reading_a_counter_latches_its_upper_word():
    engine = SoftEngine()
    address = registers.counter_address("bytes_in")
    # Nothing looks at the octets of a frame that is not for the engine.
    engine.play([bytes(1 << 24)] * 255 + [bytes((1 << 24) - 1)])
    assert engine.read(address) == 0xFFFF_FFFF
    engine.play([b"\0"])
    assert engine.read(address + 4) == 0
    assert engine.read(address) == 0
    assert engine.read(address + 4) == 1


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
