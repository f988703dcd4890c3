"""Ranks over streams that end, stop, disagree, are forked or cut off: named errors, in time."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import afflux
from tests.support.host.marks import act_when
from tests.support.host.network import network
from tests.support.host.ranks import caught, run_ranks, values

AUTO = {"AFFLUX_AGGREGATOR": "auto"}
AT_ONCE_S = 5.0
"""Far above the moment that it takes, for a busy machine; far below the group's timeout."""

LARGE = 1_000_003


def sums(count):
    """Sum tensors until that fails."""
    while True:
        dist.all_reduce(torch.ones(count))


def total(group=None, count=1000):
    tensor = torch.ones(count)
    dist.all_reduce(tensor, group=group)
    return tensor[-1].item()


def kill_itself(rank, size, count):
    assert total() == size
    killed_at = time.monotonic() + 1.0
    if rank == 1:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
    message, kind, _ = caught(lambda: sums(count))
    return message, kind, time.monotonic() - killed_at


@pytest.mark.parametrize(
    ("hosts", "size", "count"),
    [
        (2, 2, 10),
        (4, 4, LARGE),
        (3, 6, 10),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in ((2, 2, LARGE), (4, 4, 10), (3, 6, LARGE))
        ),
    ],
)
def test_a_rank_that_is_killed_is_named_at_once(hosts, size, count):
    with network(hosts=hosts, aggregators=0, gbit=None) as made:
        outcomes = run_ranks(kill_itself, size, count, hosts=made.hosts, environment=AUTO)
    assert outcomes[1].kind == "died"
    for message, kind, seconds in values(outcomes[:1] + outcomes[2:]):
        # In memory, one rank of a host may hear of it from another one.
        assert kind in ("RanksEnded", "GroupFailed")[: 1 + (size > hosts)], message
        assert "rank(s) 1 ended or " in message
        assert seconds < AT_ONCE_S


def stop_itself(rank, size, folder):
    assert total() == size
    note = Path(folder) / "pid"
    if rank == 1:
        note.write_text(str(os.getpid()), encoding="ascii")
        os.kill(os.getpid(), signal.SIGSTOP)
        # The others have failed meanwhile.
        return caught(lambda: sums(LARGE))
    found = caught(lambda: sums(LARGE))
    if rank == 0:
        os.kill(int(note.read_text(encoding="ascii")), signal.SIGCONT)
    return found


def test_a_rank_that_is_stopped_is_named_at_the_timeout(tmp_path):
    with network(hosts=3, aggregators=0, gbit=None) as made:
        outcomes = run_ranks(
            stop_itself, 3, str(tmp_path), hosts=made.hosts, environment=AUTO, timeout_s=3.0
        )
    found = values(outcomes)
    for rank in (0, 2):
        message, _, seconds = found[rank]
        assert "Timed out waiting 3000ms" in message
        assert "contributions of rank(s) 1 (streams)" in message
        assert 2.5 < seconds < 3.0 + AT_ONCE_S
    assert found[1][1] in ("GroupFailed", "RanksEnded")


def too_large(rank, size):
    assert total(count=10) == size
    return caught(lambda: total(count=LARGE))


def test_a_way_that_drops_large_packets_is_named_at_the_timeout():
    with network(hosts=2, aggregators=0, gbit=None, mtu=9000) as made:
        made.narrow(1500)
        outcomes = values(
            run_ranks(too_large, 2, hosts=made.hosts, environment=AUTO, timeout_s=8.0)
        )
    for message, kind, seconds in outcomes:
        # The one that gives up first knows it; the other one hears of that, or its connection ends.
        assert kind in ("RanksMissing", "RanksEnded", "GroupFailed"), message
        assert seconds < 8.0 + AT_ONCE_S
    assert "RanksMissing" in [kind for _, kind, _ in outcomes]
    said = " ".join(message for message, *_ in outcomes)
    assert ": its host has acknowledged nothing for " in said
    assert "no packets as large as the interfaces' MTU (segments have 8948 bytes)" in said


def called(name, odd, group):
    """Call something that one rank calls otherwise."""
    tensor = torch.ones(1000)
    if name == "length":
        dist.all_reduce(torch.ones(1001) if odd else tensor, group=group)
    elif name == "many lanes or one":
        dist.all_reduce(torch.ones(LARGE) if odd else tensor, group=group)
    elif name == "shape":
        dist.all_reduce(tensor.view(10, 100) if odd else tensor, group=group)
    elif name == "dtype":
        dist.all_reduce(tensor.to(torch.int32) if odd else tensor, group=group)
    elif name == "op":
        dist.all_reduce(tensor, dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM, group=group)
    elif name == "root":
        dist.broadcast(tensor, 1 if odd else 0, group=group)
    elif name == "collective":
        if odd:
            dist.broadcast(tensor, 0, group=group)
        else:
            dist.all_reduce(tensor, group=group)
    elif name == "barrier":
        if odd:
            dist.barrier(group)
        else:
            dist.all_reduce(tensor, group=group)


CALLS = (
    "length", "many lanes or one", "shape", "dtype", "op", "root", "collective", "barrier",
)  # fmt: skip


def disagree(rank, size):
    said = {}
    for name in CALLS:
        group = dist.new_group(backend="afflux", timeout=timedelta(seconds=30))
        assert total(group) == size
        dist.barrier()
        said[name] = caught(lambda: called(name, rank == 2, group))  # noqa: B023
        # The group is of no more use, and says why.
        again = caught(lambda: total(group))  # noqa: B023
        assert again[2] < 1.0
        assert again[1] != "nothing raised"
        dist.barrier()
    return said


def test_ranks_that_call_different_things():
    with network(hosts=3, aggregators=0, gbit=None) as made:
        outcomes = values(run_ranks(disagree, 3, hosts=made.hosts, environment=AUTO))
    for rank, said in enumerate(outcomes):
        for name, (message, kind, seconds) in said.items():
            others = "[0, 1]" if rank == 2 else "[2]"
            assert kind == "Disagreement", (name, message)
            text = f"rank {rank} called this operation, but ranks {others} called something else"
            assert text in message, name
            assert seconds < AT_ONCE_S


def fork(rank, size):
    """Let a child live on, in which the group is of no use."""
    assert total() == size
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        message, kind, _ = caught(total)
        os.write(here, f"{kind}: {message}".encode())
        time.sleep(60)
        os._exit(0)
    said = os.read(there, 10_000).decode()
    try:
        right = [total(count=count) == size for count in (10, LARGE)]
        if rank == 1:
            # The child has its files, and keeps none of the connections open.
            return said, right, ("", "", 0.0)
        return said, right, caught(lambda: sums(10))
    finally:
        if rank == 1:
            dist.destroy_process_group()
            time.sleep(1.0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_forked_child_lives_on():
    with network(hosts=3, aggregators=0, gbit=None) as made:
        outcomes = values(run_ranks(fork, 3, hosts=made.hosts, environment=AUTO))
    for rank, (said, right, (message, _, seconds)) in enumerate(outcomes):
        assert said.startswith("GroupClosed: ")
        assert right == [True, True]
        assert rank == 1 or "rank(s) 1 ended or " in message
        assert seconds < AT_ONCE_S


def interface_down(rank, size, count):
    assert total() == size
    cut_at = time.monotonic() + 1.0

    def cut():
        subprocess.run(["/sbin/ip", "link", "set", "eth0", "down"], check=True)

    if rank == 1:
        threading.Timer(1.0, cut).start()
    message, kind, _ = caught(lambda: sums(count))
    return message, kind, time.monotonic() - cut_at


@pytest.mark.parametrize("count", [pytest.param(10, marks=pytest.mark.long), LARGE])
def test_a_link_that_is_cut_is_noticed_long_before_the_timeout(count):
    with network(hosts=3, aggregators=0, gbit=None) as made:
        outcomes = run_ranks(
            interface_down, 3, count, hosts=made.hosts, environment=AUTO, timeout_s=60
        )
        for rank, (message, kind, seconds) in enumerate(values(outcomes)):
            # Rank 1 sees all others vanish; one of those may hear of it from the other one.
            assert kind == "RanksEnded" or (kind == "GroupFailed" and rank != 1), message
            assert rank == 1 or f"rank 1 at {made.hosts[1].address}: its host has not" in message
            assert seconds < 3.0 + AT_ONCE_S


def count_right_sums(rank, size, seconds, mark):
    deadline, right, slowest = time.monotonic() + seconds, 0, 0.0
    while True:
        begun = time.monotonic()
        goes_on = torch.tensor([float(begun < deadline)])
        dist.all_reduce(goes_on, dist.ReduceOp.MIN)
        if not goes_on.item():
            return right, slowest
        assert total(count=100_000) == size
        right += 1
        mark.touch()
        slowest = max(slowest, time.monotonic() - begun)


def test_a_link_that_is_cut_for_a_moment_costs_time_only(tmp_path):
    with network(hosts=2, aggregators=0, gbit=None) as made:

        def cut():
            made.unplug(made.hosts[1])
            time.sleep(1.0)
            made.unplug(made.hosts[1], plugged=True)

        mark = tmp_path / "summing"
        cutting = act_when(mark, cut)
        outcomes = run_ranks(count_right_sums, 2, 6.0, mark, hosts=made.hosts, environment=AUTO)
        cutting.join()
        for right, slowest in values(outcomes):
            assert right > 10
            assert 0.5 < slowest < 5.0


def what_is_open():
    found = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{each}").partition(":")[0])
    names = [each.name for each in threading.enumerate()]
    # The default group's thread begins with the first call that takes long, which may be any.
    return Counter(found), Counter(each for each in names if not each.startswith("afflux-0-"))


def made_and_left(rank, size):
    def make():
        group = dist.new_group(backend="afflux", pg_options=afflux.Options(interface="eth0,eth1"))
        assert total(group) == size
        assert total(group, LARGE) == size
        dist.destroy_process_group(group)

    def settle():
        dist.barrier()
        time.sleep(0.5)
        return what_is_open()

    # The first ones open what later ones share.
    for _ in range(3):
        make()
    before = settle()
    for _ in range(3):
        make()
    return before, settle()


def test_nothing_is_left_of_a_group():
    with network(hosts=2, aggregators=0, gbit=None, links=2) as made:
        for before, after in values(run_ranks(made_and_left, 2, hosts=made.hosts)):
            # A connection of torch's store may just have been there.
            assert [each - old for each, old in zip(after, before, strict=True)] == [{}, {}]
