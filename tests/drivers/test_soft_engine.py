"""The software engine against the golden model: the same frames out, the same counters."""

from contextlib import suppress

import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_hdl.contract import registers, wire
from tests.checks.command_checks import check_reasons, check_settled_workers
from tests.checks.engine_checks import DROPS
from tests.checks.golden_comparison import (
    compare_engines,
    parents_of,
    read_register,
    tickets_of,
)
from tests.scenarios.director import Build
from tests.support.drivers.virtual_job import (
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
_NEVER = (
    "build_time",
    "build_commit",
    "receive_level",
    "receive_peak",
    "delivery_level",
    "delivery_peak",
)

# In "three jobs", the second has a group, the third a parent; in "pair", the job has both.
_GROUPS = {"three jobs": {1}, "pair": {0}}
_PARENTS = {"three jobs": {2}, "pair": {0}}


@pytest.mark.parametrize("name", _JOBS)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_equals_golden_on_random_frames(name, seed):
    tickets = tickets_of(_JOBS[name], _GROUPS.get(name, ()))
    parents = parents_of(tickets, _PARENTS.get(name, ()))
    compare_engines(SoftEngine(slots=64), tickets, seed, 1500, parents)


@pytest.mark.parametrize("shares", [2, 3])
@pytest.mark.parametrize("name", _JOBS)
def test_equals_golden_when_several_cores_share_the_slots(name, shares):
    tickets = tickets_of(_JOBS[name], _GROUPS.get(name, ()))
    parents = parents_of(tickets, _PARENTS.get(name, ()))
    compare_engines(SoftEngine(slots=64, shares=shares), tickets, 5, 1500, parents)


def test_random_frames_reach_every_counter():
    engine = SoftEngine(slots=64)
    tickets = tickets_of(_JOBS["three jobs"], _GROUPS["three jobs"])
    compare_engines(engine, tickets, 77, 4000, parents_of(tickets, _PARENTS["three jobs"]))
    never = {name for name, value in counters_of(engine).items() if value == 0}
    # A software engine has no MAC, no link, no queue that could overflow, and trusts its memory.
    assert never == {"mac_error", *DROPS}


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
            assert read_register(engine, name) == 0, name
    for index in (0, 1, 2, 255):
        write_registers(engine, {"job_index": index})
        assert (
            read_register(engine, "job_enabled") == read_register(engine, "job_parent_joined") == 0
        )
        # Without a parent there is nobody to join.
        with suppress(registers.WriteRefused):
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


def test_reading_a_counter_has_no_effect():
    engine = SoftEngine()
    address = registers.counter_address("bytes_in")
    # Nothing looks at the octets of a frame that is not for the engine. Both words are live, so
    # that no reader takes part in another's.
    engine.play([bytes(1 << 24)] * 255 + [bytes((1 << 24) - 1)])
    assert engine.read(address) == 0xFFFF_FFFF
    assert engine.read(address + 4) == 0
    engine.play([b"\0"])
    assert engine.read(address + 4) == 1
    assert engine.read(address) == 0
    assert engine.read(address + 4) == 1


def test_unmapped_addresses_read_zero_and_ignore_writes():
    engine = SoftEngine()
    engine.write(0xFFC, 1)
    assert engine.read(0xFFC) == 0


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("job_workers", 0, "WORKERS"),
        ("job_workers", 9, "WORKERS"),
        ("job_lanes", 5, "LANES"),
        ("job_lanes", 0, "LANES"),
        ("job_slot_count", 17, "SLOTS"),
        ("job_slot_count", 0, "SLOTS"),
        ("job_slot_base", 16, "SLOTS"),
        ("job_slot_base", 0xFFFF, "SLOTS"),
        ("job_group_address", 0x0A000001, "GROUP"),
    ],
)
def test_refuses_a_job_it_was_not_built_for(name, value, reason):
    engine = SoftEngine(workers=8, lanes=4, jobs=2, slots=16)
    good = {"job_workers": 8, "job_lanes": 4, "job_slot_count": 16}
    create = {"job_command": registers.Command.CREATE}
    write_registers(engine, good | create)
    assert read_register(engine, "job_reason") == registers.Reason.NONE
    assert read_register(engine, "job_enabled")
    write_registers(engine, {name: value} | create)
    assert read_register(engine, "job_reason") == registers.Reason[reason]
    assert not read_register(engine, "job_enabled")


def test_refuses_slots_of_another_job():
    engine = SoftEngine(workers=8, lanes=4, jobs=3, slots=16)
    job = {"job_workers": 1, "job_lanes": 1, "job_command": registers.Command.CREATE}
    write_registers(engine, {"job_slot_base": 4, "job_slot_count": 4} | job)
    write_registers(engine, {"job_index": 2})
    for base, count in ((3, 2), (4, 1), (7, 9), (0, 16), (0, 5)):
        write_registers(engine, {"job_slot_base": base, "job_slot_count": count} | job)
        assert read_register(engine, "job_reason") == registers.Reason.OVERLAP, (base, count)
        assert not read_register(engine, "job_enabled")
    for base, count in ((0, 4), (8, 8)):
        write_registers(engine, {"job_slot_base": base, "job_slot_count": count} | job)
        assert read_register(engine, "job_reason") == registers.Reason.NONE, (base, count)
    # Its own former slots are free.
    again = {"job_index": 0, "job_slot_base": 2, "job_slot_count": 6}
    write_registers(engine, again | job)
    assert read_register(engine, "job_enabled")


def test_refuses_commands_that_nobody_can_carry_out():
    engine = SoftEngine(workers=8, lanes=4, jobs=2, slots=16)
    for index in (2, 255):
        write_registers(engine, {"job_index": index})
        for command in registers.Command:
            with pytest.raises(registers.WriteRefused, match=f"jobs 0 to 1, not {index}"):
                write_registers(engine, {"job_command": command})
            assert read_register(engine, "job_reason") == registers.Reason.INDEX
    write_registers(engine, {"job_index": 1})
    with pytest.raises(registers.WriteRefused):
        write_registers(engine, {"job_command": 0})
    assert read_register(engine, "job_reason") == registers.Reason.COMMAND
    job = {"job_workers": 1, "job_lanes": 1, "job_slot_count": 1}
    for reason in (registers.Reason.DISABLED, registers.Reason.NO_PARENT):
        write_registers(engine, {"job_command": registers.Command.JOIN_PARENT})
        assert read_register(engine, "job_reason") == reason
        write_registers(engine, job | {"job_command": registers.Command.CREATE})


class Paced(SoftEngine):
    """A software engine as the checks of the RTL take it."""

    def play(self, frames, stimulus=None, mac_errors=None):
        assert not any(mac_errors or ())
        return super().play(frames)


@pytest.mark.parametrize("shares", [1, 3])
def test_does_what_the_rtl_does_with_commands_and_joins(shares):
    build: Build = {"workers": 5, "lanes": 3, "jobs": 3, "slots": 8}
    check_settled_workers(Paced(**build, shares=shares), build)
    check_reasons(Paced(**build, shares=shares), build)


@pytest.mark.parametrize("limits", [{"workers": 65}, {"lanes": 0}, {"jobs": 257}, {"slots": 0}])
def test_refuses_to_be_built_out_of_range(limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        SoftEngine(**limits)
