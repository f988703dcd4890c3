"""A network on one machine: what its hosts are, what its links do, and that nothing of it is left.

Nothing here looks at how fast anything is, but that a link is not faster than it may be.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from benchmarks.network import namespaces
from benchmarks.network.faults import Fault
from benchmarks.network.namespaces import Network, NotPermitted
from tests.support.checkout import ROOT
from tests.support.host import serving
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.host.scripts import alive

SO_RCVBUFFORCE = 33


def namespaces_in_use():
    """Return all network namespaces that a process is in, or that one holds."""
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            links = [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        for link in [f"/proc/{pid}/ns/net", *links]:
            with contextlib.suppress(OSError):
                found.add(os.readlink(link))
    return {target for target in found if target.startswith("net:")}


def namespace_of(host):
    return os.readlink(host.namespaces["net"])


def sockets(there, back):
    """Return a UDP socket on each of two hosts, the first connected to the second."""
    with back.sockets_here():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind((back.address, 0))
    receiver.settimeout(5.0)
    # Beyond what other users may have: only who is root can make networks.
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    with there.sockets_here():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.connect(receiver.getsockname())
    return sender, receiver


def received(receiver, wait_s=0.5):
    """Count the datagrams that arrive, until none has for some time."""
    receiver.settimeout(wait_s)
    count = 0
    try:
        while True:
            receiver.recv(65536)
            count += 1
    except TimeoutError:
        return count


def where_am_i(rank, size):
    total = torch.full((1000,), float(rank + 1))
    dist.all_reduce(total)
    wanted = size * (size + 1) / 2
    assert bool((total == wanted).all())
    return socket.gethostname(), os.readlink("/proc/self/ns/net"), os.getcwd()


def test_hosts_have_names_addresses_and_files_of_their_own():
    with network(hosts=2, links=2) as made:
        first, second = made.hosts
        script = "hostname; getent hosts h1 a0; touch /dev/shm/mine; ls /dev/shm; pwd"
        said = first.run("sh", "-c", script.replace("hostname", "cat /proc/sys/kernel/hostname"))
        assert said.returncode == 0, said.stderr
        assert said.stdout.split() == [
            "h0", "10.77.0.2", "h1", "10.77.0.3", "a0", "mine", os.getcwd(),
        ]  # fmt: skip
        assert first.run("ls", "/dev/shm").stdout == "mine\n"
        assert second.run("ls", "/dev/shm").stdout == ""
        assert not Path("/dev/shm/mine").exists()
        assert first.addresses == {"eth0": "10.77.0.1", "eth1": "10.77.1.1"}
        with first.sockets_here():
            for interface, address in first.addresses.items():
                socket.create_server((address, 0)).close()
                assert socket.if_nametoindex(interface) > 0
            socket.create_server((first.address6, 0), family=socket.AF_INET6).close()
        # This thread is back where it was.
        with pytest.raises(OSError, match="assign"):
            socket.create_server((first.address, 0)).close()


def test_ranks_of_four_hosts_meet_and_sum():
    with network(hosts=4) as made:
        found = values(run_ranks(where_am_i, 8, hosts=made.hosts))
        assert [name for name, _, _ in found] == ["h0", "h0", "h1", "h1", "h2", "h2", "h3", "h3"]
        wanted = [namespace_of(made.hosts[rank // 2]) for rank in range(8)]
        assert [namespace for _, namespace, _ in found] == wanted
        assert {folder for _, _, folder in found} == {os.getcwd()}


def test_ranks_sum_at_an_aggregator_on_a_host_of_its_own():
    with network(hosts=2) as made:
        server, line = serving.start("--port", "0", place=made.aggregator)
        try:
            assert made.aggregator.address in line
            url = line.split()[-1]
            outcomes = run_ranks(
                where_am_i, 2, hosts=made.hosts, environment={"AFFLUX_AGGREGATOR": url}
            )
            assert {name for name, _, _ in values(outcomes)} == {"h0", "h1"}
        finally:
            server.terminate()
            assert serving.finish(server) == 0


def test_a_link_is_not_faster_than_its_rate():
    with network(hosts=2, aggregators=0, gbit=0.1) as made:
        sender, receiver = sockets(*made.hosts)
        started = time.monotonic()
        for _ in range(200):
            sender.send(bytes(1400))
        count = received(receiver)
        took = time.monotonic() - started - 0.5
        # The first 70 KB may pass at once.
        assert count > 100
        assert took > (count * 1442 - 70_000) * 8 / 1e8


def test_packets_are_lost_only_where_a_fault_is():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        first, second = made.hosts
        sender, receiver = sockets(first, second)

        def count(number=400):
            for _ in range(number):
                sender.send(bytes(100))
            return received(receiver)

        assert count() == 400
        made.impair(first, Fault(0.25))
        # Beyond eight standard deviations: one run in 10^15.
        assert 30 <= 400 - count() <= 170
        made.impair(first, None)
        made.impair(second, Fault(udp=True), incoming=True)
        assert count() == 0
        made.impair(second, Fault(longer_than=128), incoming=True)
        assert count() == 400
        made.impair(second, Fault(longer_than=127), incoming=True)
        assert count() == 0
        made.impair(second, None, incoming=True)
        made.unplug(second)
        assert count() == 0
        made.unplug(second, plugged=True)
        assert count() == 400


def test_only_udp_may_be_lost():
    with network(hosts=2, aggregators=0) as made:
        first, second = made.hosts
        for host in made.hosts:
            made.impair(host, Fault(udp=True))
        for address, family in (
            (second.address, socket.AF_INET),
            (second.address6, socket.AF_INET6),
        ):
            with second.sockets_here():
                server = socket.create_server((address, 0), family=family)
                udp = socket.socket(family, socket.SOCK_DGRAM)
                udp.bind((address, 0))
            with first.sockets_here():
                socket.create_connection(server.getsockname()[:2], timeout=5.0).close()
                sender = socket.socket(family, socket.SOCK_DGRAM)
                sender.sendto(b"lost", udp.getsockname())
            assert received(udp) == 0
            for each in (server, udp, sender):
                each.close()


def test_packets_are_cut_where_they_may_be_lost():
    for loss, sizes in ((0.0, {14000}), (1e-9, {1400})):
        with network(hosts=2, aggregators=0, loss=loss) as made:
            sender, receiver = sockets(*made.hosts)
            sol_udp, segment, gro = 17, 103, 104
            receiver.setsockopt(sol_udp, gro, 1)
            sender.setsockopt(sol_udp, segment, 1400)
            sender.send(bytes(14000))
            found = set()
            total = 0
            while total < 14000:
                length = len(receiver.recv(65536))
                found.add(length)
                total += length
            assert found == sizes


def test_each_packet_is_lost_by_itself():
    with network(hosts=2, aggregators=0, gbit=None, loss=0.25) as made:
        sender, receiver = sockets(*made.hosts)
        sol_udp, segment = 17, 103
        sender.setsockopt(sol_udp, segment, 100)
        for _ in range(10):
            sender.send(bytes(4000))
        # Whole ones would arrive 40 at a time. Beyond eight standard deviations, as above.
        count = received(receiver)
        assert 30 <= 400 - count <= 170


def test_jumbo_frames_pass_where_the_mtu_says_so():
    dont_fragment, mtu_discover = 2, 10
    for mtu, passes in ((9000, True), (1500, False)):
        with network(hosts=2, aggregators=0, mtu=mtu) as made:
            sender, receiver = sockets(*made.hosts)
            sender.setsockopt(socket.IPPROTO_IP, mtu_discover, dont_fragment)
            if passes:
                sender.send(bytes(8900))
                assert len(receiver.recv(65536)) == 8900
            else:
                with pytest.raises(OSError, match="too long"):
                    sender.send(bytes(8900))


def test_a_fault_has_a_share():
    with pytest.raises(ValueError, match=r"share is 1\.5"):
        Fault(1.5)


def test_nothing_is_left_after_an_error():
    before = namespaces_in_use()
    descriptors = set(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError), network(hosts=2) as made:
        assert namespace_of(made.hosts[0]) in namespaces_in_use() - before
        held = [namespace_of(host) for host in [*made.hosts, *made.aggregators]]
        raise KeyError("of the test")
    assert not set(held) & namespaces_in_use()
    assert set(os.listdir("/proc/self/fd")) == descriptors


def test_nothing_is_left_if_it_cannot_be_made():
    with network(hosts=1):
        pass
    descriptors = set(os.listdir("/proc/self/fd"))
    with pytest.raises(NotPermitted, match="mtu"):
        Network(hosts=2, mtu=1 << 20)
    with pytest.raises(ValueError, match="positive"):
        Network(hosts=2, gbit=0.0)
    assert set(os.listdir("/proc/self/fd")) == descriptors


OWNER = r"""
import os, time
from benchmarks.network.namespaces import Network
made = Network(hosts=2)
rank = made.hosts[1].popen("sh", "-c", "echo; exec sleep 60")
held = [os.readlink(host.namespaces["net"]) for host in made.hosts]
# Whole, as the rank writes to the same pipe.
os.write(1, f"{rank.pid} {' '.join(held)}\n".encode())
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(number):
    with network(hosts=1):
        pass
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert owner.stdout is not None
        both = sorted(owner.stdout.readline() for _ in range(2))
        assert both[0] == "\n"
        rank, *held = both[1].split()
        assert set(held) <= namespaces_in_use()
    finally:
        owner.send_signal(number)
        owner.wait(10)
        owner.stdout.close()
    deadline = time.monotonic() + 10
    while alive(int(rank)) or set(held) & namespaces_in_use():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_missing_for_boards_is_said(monkeypatch):
    with network(hosts=1):
        pass
    monkeypatch.setattr(namespaces, "_boards_missing", [])
    monkeypatch.setattr(namespaces, "_MAKE_TAP", "tuntap add dev eth0 mode cup")
    assert "no network can be made on this machine: ip -batch -: " in namespaces.boards_missing()
    with pytest.raises(pytest.skip.Exception, match="ip -batch"), network(hosts=1, boards=1):
        pass


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(namespaces, "_missing", [])
    monkeypatch.setattr(namespaces, "_MAKE_HOST", "echo no such luck >&2; exit 1")
    assert namespaces.missing().endswith("no namespaces can be made: no such luck")
    # The reason is the same until the process ends.
    monkeypatch.undo()
    monkeypatch.setattr(namespaces, "_missing", [])
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    assert namespaces.missing().endswith("there is no program 'unshare'")
