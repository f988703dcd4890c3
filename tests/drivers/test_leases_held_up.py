"""Leases while things are slow: a controller that is held up, a board that is busy or crowded."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from afflux_drivers.aggregator.board import Board
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.job_commands import NoRoom
from afflux_drivers.control.client import create_job, describe
from afflux_drivers.control.several import create_jobs
from afflux_drivers.device.errors import DeviceFailed
from afflux_drivers.device.udp import OutcomeUnknown
from afflux_drivers.errors import AggregatorUnreachable
from afflux_hdl.contract import registers
from tests.support.drivers.board_jobs import BOARD, enabled, table_of, until
from tests.support.drivers.board_registers import BoardRegisters
from tests.support.drivers.raw_control import RawControl
from tests.support.drivers.served import Served

CREATE = {"request": "create", "protocol": 2, "workers": 2, "lanes": 16, "slots": 8}


class Busy(BoardRegisters):
    """Its commands take their time. Meanwhile writes of a job are lost, and it may say so or not.

    Attributes:
        lasts: How often `job_busy` reads 1 after a command.
    """

    def __init__(self, says_so):
        super().__init__(*BOARD)
        self._says_so, self.lasts, self._left = says_so, 0, 0

    def read(self, address):
        if address == registers.address_of("job_busy") and self._left:
            self._left -= 1
            return 1
        return super().read(address)

    def write(self, address, value):
        first, last = (registers.address_of(each) for each in ("job_index", "job_command"))
        if self._left and first <= address <= last:
            if self._says_so:
                raise registers.WriteRefused
            return
        super().write(address, value)
        if address == last:
            self._left = self.lasts


@pytest.mark.parametrize("says_so", [False, True], ids=["PCIe", "UDP"])
def test_what_is_done_after_a_command_that_was_not_over_is_done(journal, monkeypatch, says_so):
    """A link that pauses holds a command up; later ones must not be taken for carried out."""
    monkeypatch.setattr("afflux_drivers.aggregator.job_commands._BUSY_TIMEOUT_S", 0.0)
    port = Busy(says_so)
    table = table_of(port, journal)
    first, second = table.create(2, 16, 4, lease_s=60), table.create(2, 16, 4, lease_s=60)
    port.lasts = 5000
    with pytest.raises(NoRoom, match="busy with DESTROY of job 1 for"):
        table.destroy(second)
    port.lasts = 0
    # It cannot be looked at now, which does not mean that it is lost, or must stop.
    table.forget_lost()
    assert table.find(first.number, first.key) == first
    table.destroy(first)
    assert enabled(port) == set()
    table.end(second)
    port.lasts = 5000
    with pytest.raises(NoRoom, match="busy with CREATE of job 0"):
        table.create(2, 16, 64)
    port.lasts = 0
    # Nobody knows that one: its slots must come back all the same.
    monkeypatch.setattr("afflux_drivers.aggregator.jobs._AGAIN_S", -1.0)
    table._doomed = dict.fromkeys(table._doomed, 0.0)
    table.end_overdue()
    assert enabled(port) == set()
    assert table.create(2, 16, 4).slot_base == 0


@pytest.mark.parametrize("says_so", [False, True], ids=["PCIe", "UDP"])
def test_the_next_table_waits_for_the_last_command_of_the_one_before(journal, says_so):
    port = Busy(says_so)
    job = table_of(port, journal).create(2, 16, 4, lease_s=60)
    port._left = 1000
    after = table_of(port, journal)
    after.adopt()
    assert after.find(job.number, job.key) == job
    assert enabled(port) == {job.number}


def test_a_busy_board_does_not_end_its_controller():
    port = Busy(says_so=True)
    served = Served(Board(port, "board", 500, apart=True))
    try:
        lease = create_job(served.address, 2, 16, 8, 5.0)
        port._left = 1 << 30
        time.sleep(2.5)
        port._left = 0
        assert describe(served.address, 5.0)["engine"] == "board"
        assert enabled(port) == {lease.ticket.job}
        lease.close()
    finally:
        served.stop()


@pytest.mark.parametrize("failure", [OutcomeUnknown("x"), DeviceFailed("no turn came within 2 s")])
def test_others_who_keep_a_board_busy_do_not_end_its_controller(failure):
    port = BoardRegisters(*BOARD)
    served = Served(Board(port, "board", 500, apart=True))
    try:
        lease = create_job(served.address, 2, 16, 8, 5.0)
        port.failure = failure
        time.sleep(1.5)
        port.failure = None
        assert describe(served.address, 5.0)["engine"] == "board"
        lease.close()
    finally:
        served.stop()


def test_a_controller_that_is_held_up_loses_no_job():
    """Stopped for longer than a lease, as by a board that is silent, or SIGSTOP."""
    port = BoardRegisters(*BOARD)
    served = Served(Board(port, "board", 500, apart=True))
    leases = create_jobs([served.address], 2, 16, 8, 5.0, lease_s=2)
    try:
        time.sleep(1.0)
        for _ in range(2):
            with served.server._lock:
                time.sleep(3.5)
            time.sleep(1.5)
            assert (leases.lost, enabled(port)) == (None, {0})
        # Then the job still ends with its connection.
        leases._renewal.stop()
        for each in leases._leases:
            each._channel.close()
        until(lambda: not enabled(port), 3.0)
    finally:
        leases._renewal.stop()
        served.stop()


def test_a_job_goes_over_to_the_connection_that_renews_it(served):
    """The first one may be broken without anybody's notice, and be found so much later."""
    with RawControl(served.address) as second:
        with RawControl(served.address) as first:
            created = first.ask(**CREATE, lease_s=60)
            job = {"job": created["job"], "key": created["key"]}
            assert second.ask(request="renew", **job)["ok"]
        time.sleep(0.5)
        assert second.ask(request="renew", **job)["ok"]
    with RawControl(served.address) as third:
        time.sleep(0.5)
        assert "there is no job" in third.ask(request="renew", **job)["error"]


def hold_up(control, name, seconds):
    """Stop the thread of a control channel once, where it calls one of its methods."""
    method = getattr(control, name)
    begun = threading.Event()

    def held_up():
        if not begun.is_set():
            begun.set()
            time.sleep(seconds)
        return method()

    setattr(control, name, held_up)
    assert begun.wait(5)


@pytest.fixture
def adopted(journal):
    """Yield a controller, and the renewal of the job that it has taken over, whose lease is 2 s."""
    port = BoardRegisters(*BOARD)
    job = table_of(port, journal).create(2, 16, 4, lease_s=2)
    served = Served(Board(port, "board", 500, apart=True), journal=journal)
    yield served, {"request": "renew", "job": job.number, "key": f"{job.key:016x}"}
    served.stop()


def test_a_renewal_that_waits_to_be_read_counts(adopted):
    served, renewal = adopted
    with RawControl(served.address) as client:
        assert client.ask(**renewal)["ok"]
        # Behind a look at the sockets, before one at the leases.
        hold_up(served.server._control, "_drop_late", 3.0)
        assert client.ask(**renewal)["ok"]


def test_so_does_one_over_a_connection_that_waits_to_be_taken(adopted):
    served, renewal = adopted
    hold_up(served.server._control, "_answer_early", 3.0)
    with RawControl(served.address) as client:
        assert client.ask(**renewal)["ok"]


def test_a_connection_that_has_ended_takes_no_job_with_it(adopted):
    """As those by which a client has tried to renew while the controller was held up."""
    served, renewal = adopted
    line = json.dumps(renewal).encode()
    with RawControl(served.address) as owner:
        assert owner.ask(**renewal)["ok"]
        with served.server._lock, RawControl(served.address) as tried:
            owner.send(line)
            time.sleep(0.2)
            tried.send(line)
        time.sleep(0.5)
        assert json.loads(owner.line())["ok"]
        assert owner.ask(**renewal)["ok"]


def test_a_control_channel_that_fails_ends_the_server(monkeypatch):
    """Packets alone are useless: its process must end, so that somebody notices."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    served = Served(SoftEngine())
    monkeypatch.setattr(served.server._control, "_drop_late", lambda: 1 / 0)
    served._thread.join(5)
    assert not served._thread.is_alive()
    with pytest.raises(AggregatorUnreachable):
        describe(served.address, 1.0)


FORKED = """
import os, sys, time
from afflux_drivers.control.several import create_jobs
lease = create_jobs([("127.0.0.1", int(sys.argv[1]))], 2, 16, 8, 5.0, lease_s=60)
if os.fork() == 0:
    time.sleep(20)
    os._exit(0)
print(lease.tickets[0].job, flush=True)
time.sleep(60)
"""


def test_a_child_does_not_keep_the_job_of_its_dead_parent():
    """As the processes that load data, which outlive a rank that the kernel has killed."""
    port = BoardRegisters(*BOARD)
    served = Served(Board(port, "board", 500, apart=True))
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED, str(served.address[1])],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        number = int(process.stdout.readline())
        assert enabled(port) == {number}
        process.kill()
        until(lambda: not enabled(port), 3.0)
        os.killpg(process.pid, 0)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        served.stop()
