"""Compares an engine with the golden model: the same frames out, the same counters and state."""

import random
from collections.abc import Collection

from afflux_drivers.aggregator.engine import Engine
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.frames import mac_of
from afflux_hdl.contract import registers, wire
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import CONFLICT, Endpoint, GroupAddress, parse_packet
from afflux_sim.golden.state import Parent as GoldenParent
from tests.scenarios.number_frames import NumberFrames
from tests.scenarios.ticket_frames import TicketFrames
from tests.support.drivers.virtual_job import (
    ENGINE_MAC,
    GROUP_KEY,
    Parent,
    configure,
    counters_of,
    create_job,
    write_registers,
)

__all__ = ["compare_engines", "parents_of", "read_register", "tickets_of"]

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


def read_register(engine: Engine, name: str) -> int:
    return engine.read(registers.address_of(name))


def compare_debug_registers(engine: Engine, golden: GoldenEngine, ticket: JobTicket) -> None:
    """Check that a job's debug registers show what the golden model holds."""
    job = golden.jobs[ticket.job]
    assert job is not None
    for number, slot in enumerate(job.slots):
        write_registers(engine, {"debug_slot": job.slot_base + number})
        assert read_register(engine, "debug_round") == slot.round
        seen = read_register(engine, "debug_seen_high") << 32 | read_register(
            engine, "debug_seen_low"
        )
        assert seen == slot.seen
        assert read_register(engine, "debug_phase") == (slot.seen == job.full) | slot.waiting << 1
        for version, held in enumerate(slot.versions):
            want = held.held << 17 | held.conflict << 16 | held.present
            assert read_register(engine, f"debug_version_{version}") == want
    for worker in range(64):
        write_registers(engine, {"debug_worker": ticket.job << 8 | worker})
        high = read_register(engine, "debug_peer_mac_high")
        peer = job.joined.get(worker)
        assert high >> 16 == (peer is not None)
        if peer is None:
            continue
        mac = (high & 0xFFFF) << 32 | read_register(engine, "debug_peer_mac_low")
        assert mac.to_bytes(6, "big") == peer.mac
        assert read_register(engine, "debug_peer_address").to_bytes(4, "big") == peer.packed_address
        assert read_register(engine, "debug_peer_port") == peer.port


def _check_block_by_block(sent: bytes, right: bytes, about: str) -> int:
    """Check two results that differ in blocks alone; return how many are not summed in one."""
    own, other = parse_packet(sent), parse_packet(right)
    # The seal follows the blocks; bytes from 14 to 42 are equal but for lengths and checksums.
    assert len(sent) == len(right) and sent[42:128] == right[42:128], about
    assert own.opcode >= 4, about
    if own.type == CONFLICT:
        return 0
    differ = [lane for lane, block in own.blocks.items() if (block != other.blocks[lane]).any()]
    assert differ and own.opcode >= 8, about
    assert all((own.blocks[lane] == -1).all() for lane in differ), about
    return len(differ)


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
    *,
    numbers: bool = False,
) -> None:
    """Play random frames to both. Raise AssertionError at the first difference.

    With `numbers` many have blocks of numbers, and a block may be one that the engine has not
    summed.
    """
    above = parents or {}
    golden = GoldenEngine(slots=64, mac=ENGINE_MAC, address="10.0.0.1", port=wire.PORT)
    not_summed = [0, 0]
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
            group=GroupAddress(ticket.group, ticket.group_port) if ticket.group else None,
            group_key=GROUP_KEY,
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

    def compare(frame: bytes, about: str) -> None:
        sent, right = engine.play([frame]), golden.receive(frame)
        if sent == right:
            return
        assert numbers and len(sent) == len(right), about
        for own, other in zip(sent, right, strict=True):
            not_summed[0] += _check_block_by_block(own, other, about)
            not_summed[1] += 1

    source = (NumberFrames if numbers else TicketFrames)(generator, tickets, state, above)
    joins = [source.join(ticket, worker) for ticket in tickets for worker in range(ticket.workers)]
    recent: list[bytes] = []
    for number in range(frames):
        if number < len(joins):
            frame = joins[number]
        elif recent and generator.random() < 0.05:
            frame = generator.choice(recent)
        else:
            frame = source.frame()
        recent = [frame, *recent[:20]]
        compare(frame, f"frame {number} of seed {seed}")
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
        assert read_register(engine, "job_enabled") == 1
        assert read_register(engine, "job_parent_joined") == golden.has_joined_parent(ticket.job)
        compare_debug_registers(engine, golden, ticket)
    assert not_summed[1] < frames / 5, not_summed
    # Or else nothing much was compared.
    workers = max(ticket.workers for ticket in tickets)
    assert counters["rounds"] > frames / (10 * workers)
