"""A controller and its board: jobs that outlive the controller, ways that lead to the board."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.commands import serve
from afflux_drivers.control.client import describe, read_counters
from afflux_drivers.control.several import create_jobs
from afflux_drivers.device.device import open_device
from afflux_drivers.device.errors import DeviceBusy
from afflux_drivers.errors import AggregatorRefused, AggregatorUnreachable
from afflux_hdl.contract import registers
from tests.support.drivers.soft_board import SoftBoard
from tests.support.host import serving
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values

SIZE = 2


@contextlib.contextmanager
def controlled(board, folder, *options, place=None):
    """Yield a controller's process, its first line and the address of its control channel."""
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_text(board.key.hex())
    process, line = serving.start(
        *("--key-file", str(key), *options), engine=["device", board.device], place=place
    )
    try:
        host, _, port = line.rpartition("/")[2].strip().rpartition(":")
        # It may not serve.
        yield process, line, (host, int(port) if port.isdigit() else 0)
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def sum_until_told(rank, size, told):
    """Sum again and again until a file is there; return how often, and where."""
    count = 0
    while True:
        tensor = torch.full((1000,), float(rank + 1))
        tensor[0] = float(rank == 0 and os.path.exists(told))
        dist.all_reduce(tensor)
        assert bool((tensor[1:] == 3).all())
        count += 1
        if tensor[0]:
            return count, afflux.statistics()["engine"], afflux.engine_counters()["rounds"]
        time.sleep(0.01)


def test_sums_go_on_without_the_controller_and_the_next_one_takes_over(tmp_path):
    told = tmp_path / "told"
    with SoftBoard() as board, controlled(board, tmp_path, "--port", "0") as (first, line, where):
        assert line.startswith("afflux: board engine on udp://127.0.0.1:"), line
        assert describe(where, 5)["host"] == "127.0.0.2"
        found = []

        def train():
            environment = {"AFFLUX_AGGREGATOR": f"udp://127.0.0.1:{where[1]}", "AFFLUX_LEASE": "6"}
            found.append(run_ranks(sum_until_told, SIZE, str(told), environment=environment))

        ranks = threading.Thread(target=train)
        ranks.start()
        try:
            while read_counters(where, 5)["rounds"] < 50:
                assert ranks.is_alive(), found
                time.sleep(0.05)
            first.send_signal(signal.SIGKILL)
            first.wait()
            # Longer than two renewals; the board's own counters go on.
            before = board.engine.read(0x100 + 8 * 24)
            time.sleep(4)
            assert board.engine.read(0x100 + 8 * 24) > before + 50
            with controlled(board, tmp_path, "--port", str(where[1])) as (second, again, _):
                assert again == line
                # Longer than the lease: it is renewed again.
                time.sleep(8)
                assert read_counters(where, 5)["rounds"] > before
                told.touch()
                ranks.join(30)
                assert not ranks.is_alive()
                # Rank 0 has closed the job at the second controller.
                time.sleep(0.5)
                second.terminate()
                _, said = second.communicate(timeout=20)
                assert "job 0 runs on the engine: it goes on if it is renewed within 6 s" in said
                assert board.enabled() == set()
        finally:
            told.touch()
            ranks.join(60)
        for count, engine, rounds in values(found[0]):
            assert engine == "board"
            assert count > 100
            assert rounds >= count


KILLED = """
import sys, time
from afflux_drivers.control.several import create_jobs
lease = create_jobs([("127.0.0.1", int(sys.argv[1]))], 2, 16, 8, 5.0, lease_s=60)
print(lease.tickets[0].job, flush=True)
time.sleep(600)
"""


def test_a_job_whose_creator_is_killed_is_destroyed_on_the_board(tmp_path):
    with SoftBoard() as board, controlled(board, tmp_path, "--port", "0") as (_, _, where):
        creator = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(where[1])], stdout=subprocess.PIPE, text=True
        )
        assert creator.stdout.readline() == "0\n"
        creator.kill()
        creator.communicate()
        lease = create_jobs([where], 2, 16, 64, 5.0)
        assert lease.tickets[0].job == 0
        lease.close()


def test_one_controller_rules_a_board(tmp_path):
    with SoftBoard() as board, controlled(board, tmp_path, "--port", "0") as (first, _, where):
        with controlled(board, tmp_path, "--port", "0") as (second, line, _):
            assert second.wait(20) == 1
            assert line.startswith("afflux: cannot serve: udp://127.0.0.2:"), line
            assert f"in use by process {first.pid}" in line
        assert describe(where, 5)["engine"] == "board"


def test_a_board_has_one_lock_by_whatever_name(tmp_path):
    with SoftBoard() as board, open_device(board.device, key=board.key, locks=tmp_path):
        other = board.device.replace("127.0.0.2", "127.0.2")
        with pytest.raises(DeviceBusy, match=f"in use by process {os.getpid()}"):
            open_device(other, key=board.key, locks=tmp_path)
        assert open_device(other, key=board.key, exclusive=False).read(0) == registers.IDENTITY


@contextlib.contextmanager
def served_to(output, *options, ignored=False):
    """Yield a process of an aggregator in software that serves, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = free.getsockname()
    # As below nohup, or not as where the tests run below it.
    signals = "--ignore-signal=HUP" if ignored else "--default-signal=HUP"
    words = ["env", signals, sys.executable, serve.__file__, "soft"]
    words += ["--port", str(where[1]), *options]
    process = subprocess.Popen(words, stdout=output, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                assert describe(where, 5)["engine"] == "soft"
                break
            except AggregatorUnreachable:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield process, where
    finally:
        process.kill()
        process.communicate()


def test_nobody_need_read_where_it_listens():
    """As below `| head -0`: it serves, and it ends."""
    ours, theirs = os.pipe()
    os.close(ours)
    with served_to(theirs) as (process, _):
        os.close(theirs)
        process.terminate()
        _, said = process.communicate(timeout=20)
        assert "Traceback" not in said
        assert process.returncode == 0


@pytest.mark.parametrize("ignored", [False, True])
def test_the_end_of_its_terminal_ends_it_unless_that_is_ignored(ignored):
    with served_to(subprocess.DEVNULL, ignored=ignored) as (process, where):
        lease = create_jobs([where], 2, 16, 8, 5.0)
        process.send_signal(signal.SIGHUP)
        if ignored:
            time.sleep(0.3)
            assert describe(where, 5)["engine"] == "soft"
        else:
            assert process.wait(20) == 0
        with contextlib.suppress(AggregatorUnreachable, AggregatorRefused):
            lease.close()


def test_a_board_that_is_reset_ends_its_controller(tmp_path):
    with SoftBoard() as board, controlled(board, tmp_path, "--port", "0") as (process, _, where):
        create_jobs([where], 2, 16, 8, 5.0)
        board.reset()
        _, said = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "the board has been reset since it was opened" in said
        assert "its jobs are gone" in said
        assert "the board is lost, and its controller ends: " in said
        assert "Traceback" not in said


def test_a_board_that_does_not_answer_is_waited_for(tmp_path):
    with SoftBoard() as board, controlled(board, tmp_path, "--port", "0") as (process, _, where):
        board.silent = True
        with pytest.raises(AggregatorRefused, match="no answer within"):
            create_jobs([where], 2, 16, 8, 10.0)
        time.sleep(3)
        board.silent = False
        assert process.poll() is None
        # The outcome of the requested job is unknown: it is destroyed before all else.
        deadline = time.monotonic() + 20
        while True:
            lease = create_jobs([where], 2, 16, 64, 10.0)
            lease.close()
            if lease.tickets[0].job == 0:
                break
            assert time.monotonic() < deadline
            time.sleep(0.5)
        process.terminate()
        _, said = process.communicate(timeout=20)
        assert "the board has been silent for" in said


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("udp://127.0.0.9", "the appliance requires its key"),
        ("file:///no/such/file", "/no/such/file"),
        ("pcie://0000:ff:1f.7", "0000:ff:1f.7"),
    ],
)
def test_what_is_wrong_with_a_device_is_said(url, wanted):
    process, line = serving.start(engine=["device", url])
    assert serving.finish(process) == 1
    assert line.startswith("afflux: cannot serve: ")
    assert wanted in line


def lanes_of_group(rank, size):
    tensor = torch.full((20_000,), float(rank + 1))
    dist.all_reduce(tensor)
    assert bool((tensor == 3).all())
    return afflux.statistics()["lanes"]


@pytest.mark.parametrize(
    ("narrow", "lanes"), [pytest.param(False, 16, marks=pytest.mark.long), (True, 5)]
)
def test_the_way_to_the_board_counts(tmp_path, narrow, lanes):
    """The controller is reached with 9,000 bytes, and the board with less from one of the hosts."""
    with network(hosts=2, aggregators=2, gbit=None, aggregator_gbit=None, mtu=9000) as made:
        controller, there = made.aggregators
        for host in made.hosts:
            assert host.run("ping", "-c", "1", "-W", "5", there.address).returncode in (0, 127)
        if narrow:
            route = ("ip", "route", "add", f"{there.address}/32", "dev", "eth0", "mtu", "1500")
            assert made.hosts[1].run(*route).returncode == 0
        with (
            SoftBoard(there.address, there) as board,
            controlled(board, tmp_path, "--port", "0", place=controller) as (_, line, where),
        ):
            assert line.startswith(f"afflux: board engine on udp://{controller.address}:"), line
            environment = {"AFFLUX_AGGREGATOR": f"udp://{controller.address}:{where[1]}"}
            outcomes = run_ranks(lanes_of_group, 2, hosts=made.hosts, environment=environment)
            assert values(outcomes) == [lanes, lanes]
            # The ranks' packets have come to the board.
            assert board.engine.read(0x100 + 8 * 24) > 0


@pytest.mark.long
def test_a_host_that_vanishes_loses_its_job_with_the_lease(tmp_path):
    with network(hosts=1, aggregators=2, gbit=None, aggregator_gbit=None) as made:
        (host,), (controller, there) = made.hosts, made.aggregators
        with (
            SoftBoard(there.address, there) as board,
            controlled(board, tmp_path, "--port", "0", place=controller) as (_, _, where),
        ):
            program = KILLED.replace("lease_s=60", "lease_s=4").replace("127.0.0.1", where[0])
            creator = subprocess.Popen(
                host.command(sys.executable, "-c", program, str(where[1])),
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert creator.stdout.readline() == "0\n"
                time.sleep(6)
                began = time.monotonic()
                # No segment of its connection arrives any more, nor one that ends it.
                assert host.run("ip", "link", "set", "eth0", "down").returncode == 0
                while board.golden.node.engine.read(0x094):
                    assert time.monotonic() - began < 8
                    time.sleep(0.05)
                assert time.monotonic() - began > 2.5
            finally:
                creator.kill()
                creator.communicate()
