"""Leases of jobs: renewed, run out, taken over by the board's next controller."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from afflux_drivers.aggregator.board import Board, BoardFailed
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.job_journal import JobJournal, journal_of
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, describe
from afflux_drivers.control.renewal import Renewal
from afflux_drivers.control.several import create_jobs
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.errors import (
    AffluxError,
    AggregatorMisbehaved,
    AggregatorRefused,
    AggregatorUnreachable,
)
from afflux_hdl.contract import registers, wire
from tests.support.drivers.board_jobs import BOARD, enabled, table_of, until
from tests.support.drivers.board_registers import BoardRegisters
from tests.support.drivers.ranks import Ranks
from tests.support.drivers.raw_control import RawControl
from tests.support.drivers.served import Served

CREATE = {"request": "create", "protocol": 2, "workers": 2, "lanes": 16, "slots": 8}


def test_a_job_without_renewal_ends_with_its_lease(served, caplog):
    with RawControl(served.address) as client:
        created = client.ask(**CREATE, lease_s=1)
        job = {"job": created["job"], "key": created["key"]}
        assert created["lease_s"] == 1
        # A client that asks at all is there: but only `renew` renews.
        began = time.monotonic()
        while client.ask(request="renew", **job)["ok"] and time.monotonic() < began + 2.5:
            time.sleep(0.2)
        assert client.ask(request="renew", **job) == {"ok": True, "lease_s": 1}
        began = time.monotonic()
        until(lambda: not client.ask(request="join_parent", **job)["error"].endswith("no parent"))
        # No sooner, and a busy machine may be late.
        assert 0.9 < time.monotonic() - began < 4.0
        assert "no job" in client.ask(request="renew", **job)["error"]
        # The connection goes on, and may have the next one.
        assert client.ask(**CREATE)["job"] == created["job"]
    assert "has not been renewed for 1 s: its lease has ended" in caplog.text


def test_a_job_without_a_lease_has_none(served):
    with RawControl(served.address) as client:
        created = client.ask(**CREATE)
        assert "lease_s" not in created
        answer = client.ask(request="renew", job=created["job"], key=created["key"])
        assert answer["error"] == f"job {created['job']} was created without a lease"
        for wrong in (0, 3601, 1.5, True, "9", None):
            answer = client.ask(**CREATE, lease_s=wrong)
            assert "lease_s must be an integer from 1 to 3600" in answer["error"]
        wrong_key = client.ask(request="renew", job=created["job"], key="0" * 16)
        assert "there is no job" in wrong_key["error"]


def test_the_hosts_library_renews(served):
    lease = create_jobs([served.address], 1, 16, 8, 5.0, lease_s=1)
    with Ranks(*lease.tickets) as ranks:
        for _ in range(6):
            time.sleep(0.5)
            (found,) = ranks.all_reduce([np.ones(8, np.int32)], wire.Dtype.INT32, Reduction.SUM)
            assert found.sum() == 8
    assert lease.lost is None
    lease.close()
    assert lease.lost is None


FROZEN = """
import sys, time
from afflux_drivers.control.several import create_jobs
lease = create_jobs([("127.0.0.1", int(sys.argv[1]))], 2, 16, 8, 5.0, lease_s=1)
print(lease.tickets[0].job, flush=True)
while lease.lost is None:
    time.sleep(0.05)
print(lease.lost, flush=True)
"""


def test_a_creator_that_is_stopped_loses_its_job():
    port = BoardRegisters(*BOARD)
    served = Served(Board(port, "board", 500, apart=True))
    process = subprocess.Popen(
        [sys.executable, "-c", FROZEN, str(served.address[1])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        number = int(process.stdout.readline())
        time.sleep(2.0)
        assert enabled(port) == {number}
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        # Its kernel goes on acknowledging.
        until(lambda: not enabled(port))
        assert time.monotonic() - began < 3.0
        with RawControl(served.address) as client:
            assert client.ask(**CREATE)["job"] == number
        os.kill(process.pid, signal.SIGCONT)
        assert f"there is no job {number} with this key" in process.stdout.readline()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()
        served.stop()


def test_an_appliance_states_its_address():
    port = BoardRegisters(*BOARD)
    served = Served(Board(port, "board", 500, apart=True))
    try:
        said = describe(served.address, 5)
        assert (said["host"], said["port"]) == ("127.0.0.2", 4700)
        lease = create_job(served.address, 2, 16, 8, 5.0)
        ticket = lease.ticket
        assert (ticket.host, ticket.port) == ("127.0.0.2", 4700)
        assert (ticket.apart, ticket.control) == (True, served.address)
        assert type(ticket).from_json(ticket.to_json()) == ticket
        # The controller has left the board's addresses alone.
        assert port.read(registers.address_of("local_address")) == BOARD[0]
        lease.close()
    finally:
        served.stop()
    with pytest.raises(BoardFailed, match="no address yet: local_address reads 0x00000000"):
        Served(Board(BoardRegisters(), "board", 500, apart=True))


@pytest.mark.parametrize("host", ["0.0.0.0", "239.1.1.1", "board", "::1"])
def test_an_answer_with_an_address_that_is_none(host, monkeypatch):
    port = BoardRegisters(*BOARD)
    board = Board(port, "board", 500, apart=True)
    monkeypatch.setattr(board, "own_address", lambda: (host, 4700))
    served = Served(board)
    try:
        with pytest.raises(AggregatorMisbehaved, match="missing or invalid 'host'"):
            create_job(served.address, 2, 16, 8, 5.0)
    finally:
        served.stop()


def test_the_next_table_takes_over_what_was_leased(journal, caplog):
    port = BoardRegisters(*BOARD)
    before = table_of(port, journal)
    leased, plain = before.create(2, 16, 4, lease_s=1), before.create(2, 16, 4)
    assert enabled(port) == {0, 1}
    after = table_of(port, journal)
    after.adopt()
    assert enabled(port) == {leased.number}
    assert after.find(leased.number, leased.key) == leased
    assert after.find(plain.number, plain.key) is None
    assert "job 0 runs on the engine: it goes on if it is renewed within 1 s" in caplog.text
    assert "job 1 on the engine belongs to nobody: it is destroyed" in caplog.text
    # Its slots are taken.
    assert after.create(1, 16, 4).slot_base == leased.slot_base + leased.slots
    after.renew(leased)
    time.sleep(0.6)
    after.renew(leased)
    time.sleep(0.6)
    after.end_overdue()
    assert enabled(port) == {0, 1}
    time.sleep(0.6)
    after.end_overdue()
    assert enabled(port) == {1}
    # The next one finds nothing of that job.
    last = table_of(port, journal)
    last.adopt()
    assert enabled(port) == set()


def test_jobs_that_no_journal_has_are_destroyed(journal, tmp_path, caplog):
    port = BoardRegisters(*BOARD)
    table_of(port, None).create(2, 16, 4, lease_s=60)
    table_of(port, journal).adopt()
    assert enabled(port) == set()

    table_of(port, journal).create(2, 16, 4, lease_s=60)
    path = tmp_path / "state" / "board.json"
    assert path.stat().st_mode & 0o777 == 0o600
    for wrong in ("", "{", "[]", '{"format": 2, "jobs": []}', '{"format": 1, "jobs": [{}]}'):
        path.write_text(wrong)
        caplog.clear()
        assert journal.read() == []
        assert f"the jobs of the board are not known: {path}" in caplog.text
    table_of(port, journal).adopt()
    assert enabled(port) == set()
    assert json.loads(path.read_text())["jobs"] == []


def test_a_journal_that_cannot_be_written_is_no_reason_to_stop(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    port = BoardRegisters(*BOARD)
    table = table_of(port, JobJournal(tmp_path / "file" / "board.json"))
    table.create(2, 16, 4, lease_s=60)
    assert "could not be written down, so they end if this process does" in caplog.text
    assert enabled(port) == {0}


@pytest.mark.parametrize("state", ["", "relative/state"])
def test_each_board_has_its_journal_and_who_has_no_home_none(monkeypatch, caplog, tmp_path, state):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    board = DeviceUrl.parse("udp://127.0.0.2")
    first = journal_of(board, state)._path
    assert first.is_relative_to(tmp_path / ".local" / "state" / "afflux")
    # The same for all names of the board.
    assert journal_of(DeviceUrl.parse("udp://127.2"), state)._path == first
    assert journal_of(DeviceUrl.parse("udp://127.0.0.3"), state)._path != first

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert journal_of(board, state) is None
    assert "the jobs of the board are not written down, so they end if this process" in caplog.text


def test_a_client_finds_the_next_controller(journal):
    """The job outlives the process that made it: as after a SIGKILL, its table just is no more."""
    port = BoardRegisters(*BOARD)
    first = Served(Board(port, "board", 500, apart=True), journal=journal)
    address = first.address
    lease = create_job(address, 2, 16, 8, 5.0, lease_s=5)
    # The steps that a killed process cannot take.
    for table in (first.server._control._table,):
        table._jobs.clear()
    first.stop()
    assert enabled(port) == {lease.ticket.job}
    with pytest.raises(AggregatorUnreachable):
        lease.renew(1.0)
    second = Served(Board(port, "board", 500, apart=True), journal=journal, port=address[1])
    try:
        lease.renew(1.0)
        assert enabled(port) == {lease.ticket.job}
        # It is this connection's now.
        lease._channel.close()
        until(lambda: not enabled(port))
        lease._channel = None
        with pytest.raises(AggregatorRefused, match="there is no job"):
            lease.renew(1.0)
        lease._channel.close()
    finally:
        second.stop()


def test_renewal_goes_on_while_nobody_answers(journal, caplog):
    port = BoardRegisters(*BOARD)
    first = Served(Board(port, "board", 500, apart=True), journal=journal)
    lease = create_job(first.address, 2, 16, 8, 5.0, lease_s=2)
    renewal = Renewal([lease])
    first.server._control._table._jobs.clear()
    first.stop()
    until(lambda: "the lease of a job cannot be renewed, which is tried again" in caplog.text)
    time.sleep(1.5)
    second = Served(Board(port, "board", 500, apart=True), journal=journal, port=first.address[1])
    try:
        until(lambda: "the lease of a job is renewed again, after" in caplog.text)
        time.sleep(3)
        assert (enabled(port), renewal.lost) == ({0}, None)
        # Somebody else ends it.
        key = f"{lease.ticket.key:016x}"
        with RawControl(second.address) as client:
            assert client.ask(request="close", job=0, key=key)["ok"]
        until(lambda: renewal.lost is not None)
        assert "the job is over: renew on the aggregator" in str(renewal.lost)
    finally:
        renewal.stop()
        lease._channel.close()
        second.stop()


def test_workers_of_a_job_whose_lease_has_ended_are_told(served):
    lease = create_job(served.address, 1, 16, 8, 5.0, lease_s=1)
    with Ranks(lease.ticket, peer_timeout_s=2.0) as ranks:
        time.sleep(2.0)
        (found,) = ranks.all_reduce([np.ones(8, np.int32)], wire.Dtype.INT32, Reduction.SUM, 30.0)
        assert isinstance(found, AggregatorUnreachable)
        assert "no longer knows job 0: it refuses its worker (it has no such job)" in str(found)
    with pytest.raises(AggregatorRefused, match="there is no job"):
        lease.close()


def test_a_board_that_does_not_let_a_job_go_is_asked_again(journal, caplog, monkeypatch):
    monkeypatch.setattr("afflux_drivers.aggregator.jobs._AGAIN_S", 0.2)
    port = BoardRegisters(*BOARD)
    table = table_of(port, journal)
    job = table.create(2, 16, 4, lease_s=1)
    port.failure = AffluxError("nobody answers")
    table.end(job)
    table.end_overdue()
    assert caplog.text.count("job 0 is over, but not destroyed yet") == 1
    assert "nobody answers" in caplog.text
    port.failure = None
    assert enabled(port) == {0}
    time.sleep(0.3)
    table.end_overdue()
    assert enabled(port) == set()
    assert table.create(2, 16, 4).number == 0


def test_a_board_that_was_reset_has_lost_its_jobs(journal, caplog):
    port = BoardRegisters(*BOARD)
    table = table_of(port, journal)
    job = table.create(2, 16, 4, lease_s=9)
    table.forget_lost()
    assert table.find(job.number, job.key) is job
    port.engine = SoftEngine(workers=8, lanes=16, jobs=4, slots=64)
    caplog.set_level(logging.ERROR)
    table.forget_lost()
    assert table.find(job.number, job.key) is None
    assert "the engine has lost job 0: it was reset" in caplog.text
    assert journal.read() == []


def test_who_cannot_be_trusted_writes_no_journal(journal, tmp_path, caplog):
    table_of(BoardRegisters(*BOARD), journal).create(2, 16, 4, lease_s=60)
    path = tmp_path / "state" / "board.json"
    good = path.read_text()
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert journal.read() == []
        assert "others than this user may have written it" in caplog.text
    path.chmod(0o600)
    assert len(journal.read()) == 1
    for name, wrong in (
        ("number", "0"), ("number", -1), ("lease_s", 1e9), ("lease_s", 3601), ("lease_s", True),
        ("slots", None), ("slot_base", "x" * 10), ("round", 1 << 32), ("peer", 7), ("key", "z"),
        ("group", "239.1.1.1"), ("parent", {}), ("more", 1),
    ):  # fmt: skip
        found = json.loads(good)
        found["jobs"][0][name] = wrong
        path.write_text(json.dumps(found))
        assert journal.read() == [], (name, wrong)
    for text in (good[: len(good) // 2], "[" * 100_000, "\0" * 100, '{"format": 1, "jobs": 7}'):
        path.write_text(text)
        assert journal.read() == []
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        path.rmdir() if path.is_dir() else path.unlink()
        make(path)
        assert journal.read() == []
    path.unlink()
    assert journal.read() == []
