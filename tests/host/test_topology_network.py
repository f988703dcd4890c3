"""Shards between hosts, each in a network namespace of its own: paths, faults, what Gloo is for."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.autotune import calibration
from afflux.group.forming import launched_aggregator, plans
from afflux_drivers.worker.worker import Worker
from benchmarks.network.faults import Fault
from tests.support.host.network import network
from tests.support.host.ranks import caught, run_ranks, values
from tests.support.host.warnings_heard import Recording

SHARDS = {"AFFLUX_AGGREGATOR": "shards://"}
FAST = afflux.Options(aggregator="shards://", peer_timeout_s=1.0)


def total(size, group=None):
    tensor = torch.full((100_000,), 1.0)
    dist.all_reduce(tensor, group=group)
    return tensor[7].item() == size


def automatic(rank, size, worth=0.0):
    """Make a group with no address given; shards win the calibration, unless `worth` is large."""
    calibration._WORTH_IT = worth
    # The default group has had its own.
    calibration._outcomes.clear()
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    started = time.monotonic()
    group = dist.new_group(backend="afflux")
    seconds = time.monotonic() - started
    found = afflux.statistics(group)
    return total(size, group), found, recording.messages, seconds


@pytest.mark.parametrize(("mtu", "lanes"), [(1500, 5), (9000, 16), (3500, 13), (1280, 4)])
def test_nothing_is_given_and_nothing_need_be_started(mtu, lanes):
    with network(hosts=3, aggregators=0, gbit=None, mtu=mtu) as made:
        for right, found, warnings, _ in values(run_ranks(automatic, 3, hosts=made.hosts)):
            assert right
            assert (found["topology"], found["aggregators"]) == ("shards", 3)
            assert found["lanes"] == lanes
            assert re.match(r"shards take [0-9.]+ ms for (64 K|[18] M)iB", found["topology_reason"])
            assert warnings == []


def contested(rank, size):
    # The default group's shard, perhaps.
    before = len(launched_aggregator._launched)
    first = automatic(rank, size, worth=1000.0)
    # The same hosts do not compete again.
    setattr(calibration, "_SIZES", ())  # noqa: B010 - of another length, for mypy
    group = dist.new_group(backend="afflux")
    again = afflux.statistics(group)
    pair = dist.new_group([0, 1], backend="afflux")
    reason = afflux.statistics(pair)["topology_reason"] if rank < 2 else ""
    return *first, again, reason, total(size, group), len(launched_aggregator._launched) - before


def test_gloo_wins_where_it_is_faster():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        outcomes = values(run_ranks(contested, 3, hosts=made.hosts))
    for right, found, warnings, _, again, of_pair, right_again, launched in outcomes:
        assert right and right_again
        assert (found["topology"], found["engine"]) == ("gloo", "gloo")
        assert re.match(r"shards take [0-9.]+ ms for (64 K|[18] M)iB, dense, ",
                        found["topology_reason"])  # fmt: skip
        assert again["topology_reason"] == found["topology_reason"]
        # The ranks of the pair share memory.
        assert of_pair in ("", "all ranks share it")
        # Nobody has asked for Gloo to be avoided, and nothing runs on.
        assert warnings == []
        assert launched == 0


def test_ranks_of_a_host_send_one_stream():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        for right, found, _, _ in values(run_ranks(automatic, 5, hosts=made.hosts)):
            assert right
            assert (found["topology"], found["aggregators"]) == ("shards by host", 2)


def asked_for(rank, size):
    return total(size), afflux.statistics()


def test_a_switch_that_carries_less_than_its_hosts_send():
    with network(hosts=3, aggregators=0, gbit=None, mtu=9000) as made:
        # Cut before the switch, which takes what passes uncut for one long packet.
        cut = made.hosts[1].run("ip", "link", "set", "dev", "eth0", "gso_max_segs", "1")
        assert cut.returncode == 0, cut.stderr
        made.impair(made.hosts[1], Fault(longer_than=2000))
        for right, found in values(run_ranks(asked_for, 3, hosts=made.hosts, environment=SHARDS)):
            assert right
            assert (found["topology"], found["lanes"]) == ("shards", 5)


def test_a_network_that_loses_is_used():
    with network(hosts=3, aggregators=0, gbit=None, loss=0.05) as made:
        for right, found, _, _ in values(run_ranks(automatic, 3, hosts=made.hosts)):
            assert right
            assert (found["topology"], found["lanes"]) == ("shards", 5)


PAIR = (
    r"no UDP packet of data size from "
    r"rank (1 on h1 \(10\.77\.0\.2\) reaches rank 2 on h2"
    r"|2 on h2 \(10\.77\.0\.3\) reaches rank 1 on h1)"
)


def cut(made):
    """Let no UDP packet from host 1 reach host 2, nor perhaps back. TCP passes."""
    rule = "rule add to 10.77.0.3 ipproto udp blackhole"
    done = made.hosts[1].run("/sbin/ip", *rule.split())
    if done.returncode != 0:
        pytest.skip(f"no such rule can be made: {done.stderr.strip()}")


def test_one_path_that_carries_nothing_leaves_gloo():
    with network(hosts=3, aggregators=0, gbit=None) as made:
        cut(made)
        outcomes = values(run_ranks(automatic, 3, hosts=made.hosts))
        for rank, (right, found, warnings, seconds) in enumerate(outcomes):
            assert right
            assert (found["topology"], found["engine"]) == ("gloo", "gloo")
            assert re.search(PAIR, found["topology_reason"])
            assert len(warnings) == (rank == 0)
            assert all(re.search(PAIR, text) for text in warnings)
            # The probes take 1.5 s; the rest is what a loaded machine takes to make Gloo.
            assert seconds < 10


def required(rank, size, options):
    return caught(lambda: dist.new_group(backend="afflux", pg_options=options))


@pytest.mark.parametrize(
    "options", [afflux.Options(require=True), afflux.Options(aggregator="shards://")]
)
def test_one_path_that_carries_nothing_is_an_error_where_gloo_is_not_wanted(options):
    with network(hosts=3, aggregators=0, gbit=None) as made:
        cut(made)
        for message, _, seconds in values(run_ranks(required, 3, options, hosts=made.hosts)):
            assert re.search(PAIR, message)
            assert ("AFFLUX_REQUIRE=1, but only Gloo is left: " in message) is bool(options.require)
            assert seconds < 10


def test_without_udp_gloo_is_left():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        made.impair(made.hosts[1], Fault(udp=True))
        for right, found, _, _ in values(run_ranks(automatic, 2, hosts=made.hosts)):
            assert right
            assert found["topology"] == "gloo"
            assert "from rank 1 on h1 (10.77.0.2) reaches rank 0 on h0" in found["topology_reason"]


def own_shard():
    """Return the process that this rank has launched."""
    (launched,) = launched_aggregator._launched.values()
    return launched.process.pid


def killed_shard(rank, size):
    group = dist.new_group(backend="afflux", pg_options=FAST)
    assert total(size, group)
    if rank == 1:
        os.kill(own_shard(), signal.SIGKILL)
    return caught(lambda: [total(size, group) for _ in range(3)])


def test_a_dead_shard_is_named_at_every_rank():
    with network(hosts=3, aggregators=0, gbit=None) as made:
        for message, _, seconds in values(run_ranks(killed_shard, 3, hosts=made.hosts)):
            assert "the shard of rank 1 on h1" in message
            assert "10.77.0.2" in message
            assert seconds < 15


def killed_rank(rank, size):
    group = dist.new_group(backend="afflux", pg_options=FAST)
    assert total(size, group)
    # Its store is at rank 0's host, its shard ends with it.
    if rank == 2:
        Path(os.environ["WHERE"]).write_text(str(own_shard()), encoding="ascii")
        os.kill(os.getpid(), signal.SIGKILL)
    return caught(lambda: [total(size, group) for _ in range(3)])


def test_a_shard_ends_with_its_rank(tmp_path):
    where = tmp_path / "shard"
    with network(hosts=3, aggregators=0, gbit=None) as made:
        environment = {"WHERE": str(where)}
        outcomes = run_ranks(killed_rank, 3, hosts=made.hosts, environment=environment)
        assert outcomes[2].kind == "died"
        for message, _, seconds in values(outcomes[:2]):
            assert "rank(s) 2 ended or left the group: rank 2 at 10.77.0.3" in message
            assert seconds < 15
    shard = where.read_text(encoding="ascii")
    give_up = time.monotonic() + 10
    while subprocess.run(
        ["ps", "-o", "pid=", "-p", shard], check=False, capture_output=True
    ).stdout:
        assert time.monotonic() < give_up
        time.sleep(0.05)


def drain():
    """Take all datagrams that have come to this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found = socket.socket(fileno=os.dup(int(name)))
            with found:
                while found.type == socket.SOCK_DGRAM:
                    found.recv(1 << 16, socket.MSG_DONTWAIT)


def leaving(rank, size):
    """Leave as soon as the sum is there; rank 2 loses its results, and asks for them later."""
    group = dist.new_group(backend="afflux", pg_options=afflux.Options(peer_timeout_s=3.0))
    run = Worker._run

    def late(*arguments):
        # The data has been sent: a round is enough for zeros. The others have the sum and leave.
        time.sleep(1.0)
        drain()
        run(*arguments)

    if rank == 2:
        setattr(Worker, "_run", late)  # noqa: B010 - a method, for mypy
    # Not in one piece, so that Python carries it out.
    tensor = torch.zeros(2, 50_000).t()
    dist.all_reduce(tensor, group=group)
    started = time.monotonic()
    dist.destroy_process_group(group)
    return time.monotonic() - started


def test_leaders_leave_after_the_ranks_that_need_them():
    with network(hosts=3, aggregators=0, gbit=None) as made:
        waited = values(run_ranks(leaving, 3, hosts=made.hosts, environment=SHARDS))
        # Rank 1 leads, too: its host's shard has part of the sum.
        assert min(waited[:2]) > 0.5
