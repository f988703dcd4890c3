"""Jobs over the control channel: created, lost, refused."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from afflux_drivers import _native
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.job_commands import NoRoom
from afflux_drivers.aggregator.jobs import JobTable
from afflux_drivers.control.client import create_job, describe, read_counters
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AggregatorMisbehaved, AggregatorRefused, AggregatorUnreachable
from afflux_hdl.contract import registers, wire
from tests.support.drivers.ranks import Ranks
from tests.support.drivers.served import Served


def test_ticket_survives_json():
    ticket = JobTicket("h", 4700, 2, 0xFFFF_FFFF_FFFF_FFFE, 2**32 - 1, 4, 16, 32, 32, "soft")
    assert JobTicket.from_json(ticket.to_json()) == ticket
    assert json.loads(ticket.to_json())["key"] == "fffffffffffffffe"
    with pytest.raises((ValueError, TypeError)):
        JobTicket.from_json('{"key": "0"}')


def test_ticket_of_a_tree():
    ticket = JobTicket("h", 4700, 2, 1, 0, 3, 16, 32, 32, "soft", members=(4, 0, 5), ranks=6)
    assert JobTicket.from_json(ticket.to_json()) == ticket
    assert ticket.size == 6
    assert [ticket.rank_of(worker) for worker in range(3)] == [4, 0, 5]
    assert [ticket.worker_of(rank) for rank in (4, 0, 5)] == [0, 1, 2]
    with pytest.raises(ValueError, match="rank 1 is not one of"):
        ticket.worker_of(1)
    for members, ranks in (((0, 1), 6), ((0, 1, 1), 6), ((0, 1, 6), 6), ((-1, 0, 1), 6), ((), 6)):
        with pytest.raises(ValueError, match="not those of 3 workers"):
            replace(ticket, members=members, ranks=ranks)


def test_wishes_are_granted_as_far_as_possible(served):
    lease = create_job(served.address, 2, 16, 10_000, 5.0)
    ticket = lease.ticket
    assert (ticket.host, ticket.port) == served.address
    assert (ticket.workers, ticket.lanes, ticket.engine) == (2, 16, "soft")
    assert 1 <= ticket.slots <= 512
    assert ticket.credit >= ticket.slots
    lease.close()
    lease.close()


@pytest.fixture
def all_for_one() -> Iterator[Served]:
    """Serve an engine of which one peer may have everything."""
    running = Served(SoftEngine(), access=Access(peer_share=1.0))
    yield running
    running.stop()


def test_all_jobs_in_use(all_for_one):
    served = all_for_one
    leases = [create_job(served.address, 1, 1, 1, 5.0) for _ in range(8)]
    assert len({lease.ticket.job for lease in leases}) == 8
    assert len({lease.ticket.key for lease in leases}) == 8
    with pytest.raises(AggregatorRefused, match="all 8 jobs"):
        create_job(served.address, 1, 1, 1, 5.0)
    leases[3].close()
    again = create_job(served.address, 1, 1, 1, 5.0)
    assert again.ticket.job == 3
    assert again.ticket.key != leases[3].ticket.key
    for lease in (*leases, again):
        lease.close()


def test_more_workers_than_built_for(served):
    with pytest.raises(AggregatorRefused, match=r"create on .*: 65 workers are more than the 64"):
        create_job(served.address, 65, 1, 1, 5.0)


def test_job_ends_with_its_connection(served):
    lease = create_job(served.address, 1, 4, 4, 5.0)
    channel = lease._channel
    assert channel is not None
    with Ranks(lease.ticket):
        pass
    channel.close()
    for _ in range(100):
        try:
            with Ranks(lease.ticket):
                time.sleep(0.02)
        except AggregatorRefused:
            break
    else:
        pytest.fail("the job is still there")
    with pytest.raises(AggregatorUnreachable):
        lease.close()


def test_nobody_there():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    for call in (
        lambda: create_job(("127.0.0.1", port), 1, 1, 1, 1.0),
        lambda: describe(("127.0.0.1", port), 1.0),
        lambda: read_counters(("no-such-host.invalid", port), 1.0),
        lambda: describe(("127.0.0.1", 70_000), 1.0),
    ):
        with pytest.raises(AggregatorUnreachable, match=r"(invalid|0.0.1):"):
            call()


@contextmanager
def answering(data: bytes | None) -> Iterator[tuple[str, int]]:
    """Run a TCP server that answers the first request with these bytes, or never."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(4096)
            if data is not None:
                client.sendall(data)
            over.wait(10)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        over.set()
        thread.join()
        listener.close()


GOOD = {
    "ok": True,
    "job": 2,
    "key": "00f1e2d3c4b5a697",
    "round": 3735928559,
    "workers": 4,
    "lanes": 16,
    "slots": 32,
    "credit": 32,
    "port": 4700,
    "engine": "soft",
}


def test_the_documents_own_example():
    with answering(json.dumps(GOOD).encode() + b"\n") as address:
        ticket = create_job(address, 4, 16, 64, 5.0).ticket
    assert ticket.key == 0x00F1_E2D3_C4B5_A697
    assert ticket.port == 4700


def test_an_answer_with_a_group():
    answer = {**GOOD, "group": "239.1.2.3", "group_port": 4701}
    with answering(json.dumps(answer).encode() + b"\n") as address:
        ticket = create_job(address, 4, 16, 64, 5.0).ticket
    assert (ticket.group, ticket.group_port) == ("239.1.2.3", 4701)
    assert JobTicket.from_json(ticket.to_json()) == ticket


def test_an_answer_with_ranges():
    with answering(json.dumps({**GOOD, "ranges": 2}).encode() + b"\n") as address:
        ticket = create_job(address, 4, 16, 64, 5.0).ticket
    assert ticket.ranges == 2
    assert JobTicket.from_json(ticket.to_json()) == ticket


@pytest.mark.parametrize("shares", [1, 3])
def test_a_ticket_names_the_ranges_of_the_aggregators_threads(shares):
    served = Served(SoftEngine(shares=shares))
    try:
        lease = create_job(served.address, 1, 4, 6, 5.0)
        assert lease.ticket.ranges == shares
        lease.close()
    finally:
        served.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        b"{}\n",
        b"[]\n",
        b"\xff\n",
        b"x" * 100_000,
        *(
            json.dumps({**GOOD, **change}).encode() + b"\n"
            for change in (
                {"key": 5},
                {"key": "xyz"},
                {"job": None},
                {"workers": 3},
                {"slots": 33},
                {"slots": 0},
                {"lanes": 17},
                {"ranges": 0},
                {"ranges": 65},
                {"ranges": True},
                {"group": "239.1.2.3"},
                {"group": "239.1.2.3", "group_port": 0},
                {"group": "10.1.2.3", "group_port": 4701},
                {"ok": False, "error": "no"},
            )
        ),
    ],
)
def test_answers_that_make_no_sense(wrong):
    with (
        answering(wrong) as address,
        pytest.raises((AggregatorMisbehaved, AggregatorRefused), match=r"create on .*127\.0\.0\.1"),
    ):
        create_job(address, 4, 16, 64, 5.0)


def test_no_answer_ends_in_time():
    with answering(None) as address:
        start = time.monotonic()
        with pytest.raises(AggregatorUnreachable, match=r"no answer in 0\.3 s"):
            create_job(address, 1, 1, 1, 0.3)
        assert time.monotonic() - start < 2


def test_slot_ranges_do_not_overlap():
    engine = SoftEngine(jobs=4, slots=10)
    table = JobTable(engine, room_bytes=1 << 30)
    jobs = [table.create(1, 16, wish) for wish in (4, 3, 2)]
    used = [slot for job in jobs for slot in range(job.slot_base, job.slot_base + job.slots)]
    assert sorted(used) == list(range(9))
    table.destroy(jobs[0])
    # The longest gap is the four slots that came free.
    job = table.create(1, 16, 8)
    assert (job.slot_base, job.slots) == (0, 4)
    job = table.create(1, 16, 8)
    assert (job.slot_base, job.slots) == (9, 1)
    table.destroy(jobs[1])
    table.destroy(jobs[1])
    table.create(1, 16, 3)
    with pytest.raises(NoRoom, match="all 4 jobs"):
        table.create(1, 16, 1)


def test_slots_run_out():
    table = JobTable(SoftEngine(jobs=4, slots=2), room_bytes=1 << 30)
    table.create(1, 16, 2)
    with pytest.raises(NoRoom, match="all 2 slots"):
        table.create(1, 16, 1)


def test_credit_is_shared():
    table = JobTable(SoftEngine(), 400 * _native.datagram_charge(wire.datagram_bytes(16)))
    first = table.create(4, 16, 512)
    assert first.slots == first.credit == 50
    second = table.create(4, 16, 512)
    assert second.slots == 25
    table.destroy(first)
    assert table.create(1, 16, 512).slots == 150
    # A job never gets less than if it were alone, up to 16 slots.
    assert table.create(64, 16, 512).slots == 6
    assert table.create(8, 16, 512).slots == 16
    # Too many for the buffer get one slot all the same.
    assert JobTable(SoftEngine(), 10_000).create(64, 16, 512).slots == 1


@pytest.mark.parametrize(("lanes", "slots"), [(4, 16), (5, 16), (13, 9), (16, 4)])
def test_credit_by_the_default_buffer(lanes, slots):
    """Four workers keep a path of 1 Gbit/s busy although Linux gives 212,992 bytes."""
    room = _native.usable_bytes(212_992)
    table = JobTable(SoftEngine(), room)
    for _ in range(3):
        assert table.create(4, lanes, 32).slots == slots
    assert 4 * slots * _native.datagram_charge(wire.datagram_bytes(lanes)) <= room


def test_engine_that_never_gets_ready(monkeypatch):
    engine = SoftEngine()
    table = JobTable(engine, room_bytes=10)
    busy = registers.address_of("job_busy")
    monkeypatch.setattr("afflux_drivers.aggregator.job_commands._BUSY_BEFORE_S", 0.05)
    monkeypatch.setattr(
        SoftEngine, "read", lambda self, address: 1 if address == busy else 0, raising=True
    )
    with pytest.raises(NoRoom, match="busy with commands before CREATE of job 0"):
        table.create(1, 1, 1)


def test_a_job_that_cannot_be_destroyed_leaves_the_others_served(served, monkeypatch, caplog):
    lease = create_job(served.address, 1, 1, 1, 5.0)
    monkeypatch.setattr("afflux_drivers.aggregator.job_commands._BUSY_BEFORE_S", 0.05)
    busy, read = registers.address_of("job_busy"), SoftEngine.read
    monkeypatch.setattr(
        SoftEngine, "read", lambda self, address: 1 if address == busy else read(self, address)
    )
    with caplog.at_level("ERROR", "afflux"):
        with pytest.raises(AggregatorRefused, match="commands before DESTROY"):
            lease.close()
        # The connection is closed all the same.
        deadline = time.monotonic() + 10
        while not caplog.text and time.monotonic() < deadline:
            assert describe(served.address, 5.0)["engine"] == "soft"
    text = "job 0 is over, but not destroyed yet: the engine has been busy with commands"
    assert text in caplog.text
