"""Ranks that are gone where none shares memory: noticed at once, and named; slow ones are not."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tests.support.host.network import network
from tests.support.host.ranks import caught, run_ranks, values

AT_ONCE_S = 5.0
"""Far above the half second that it takes, for a busy machine; far below the group's timeout."""

TIMEOUT_S = 30.0


def kill(_rank):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_beside_a_child(rank):
    """Die while a forked process lives, such as a data loader's."""
    if os.fork() == 0:
        time.sleep(AT_ONCE_S + 1)
        os._exit(0)
    kill(rank)


def leave(_rank):
    dist.destroy_process_group()


def exit_without_a_word(_rank):
    os._exit(0)


ENDS = {
    "killed": kill,
    "killed beside a child": kill_beside_a_child,
    "exits": exit_without_a_word,
    "destroys": leave,
}


def lose_rank_1(rank, _size, end, call):
    dist.all_reduce(torch.ones(1))
    subgroup = dist.new_group([0, 1])
    if rank == 1:
        # The others are in their calls by then.
        time.sleep(0.5)
        ENDS[end](rank)
        return None
    group = subgroup if call == "subgroup" and rank == 0 else None
    tensor = torch.ones(3)
    if call == "broadcast":
        return caught(lambda: dist.broadcast(tensor, 1))
    if call == "reduce_scatter":
        # Of a type that Gloo sums: its own wait for this has no limit.
        whole = torch.ones(9, dtype=torch.float64)
        return caught(lambda: dist.reduce_scatter_tensor(whole[:3].clone(), whole))
    if call == "pending":
        work = dist.all_reduce(tensor, async_op=True)
        return caught(work.wait)
    found = caught(lambda: dist.all_reduce(tensor, group=group))
    if group is not None:
        # Nor does rank 0 leave rank 2 alone in the larger group.
        caught(lambda: dist.all_reduce(tensor))
    return found


@pytest.mark.parametrize(
    ("url", "end", "call"),
    [
        ("streams://", "killed", "all_reduce"),
        ("streams://", "killed", "subgroup"),
        ("streams://", "killed beside a child", "broadcast"),
        ("streams://", "exits", "pending"),
        ("streams://", "destroys", "all_reduce"),
        ("soft://", "killed", "subgroup"),
        pytest.param("soft://", "killed beside a child", "all_reduce", marks=pytest.mark.long),
        ("soft://", "destroys", "pending"),
        ("gloo://", "killed", "broadcast"),
        ("gloo://", "killed", "reduce_scatter"),
    ],
)
def test_a_rank_that_is_gone_is_named_at_once(url, end, call):
    outcomes = run_ranks(
        lose_rank_1, 3, end, call, environment={"AFFLUX_AGGREGATOR": url}, timeout_s=TIMEOUT_S
    )
    assert outcomes[1].failed == (end != "destroys")
    for rank in (0, 2):
        message, kind, seconds = outcomes[rank].value
        assert kind == "RanksEnded", message
        if url == "streams://":
            # The stream or the connection of liveness: whichever is heard first.
            seen = "rank(s) 1 ended or "
        elif end == "destroys":
            seen = "rank(s) 1 ended or left the group: rank 1 at 127.0.0.1: it has left the group"
        else:
            seen = "rank(s) 1 ended or left the group: rank 1 at 127.0.0.1: its process has closed"
        assert seen in message
        assert seconds < AT_ONCE_S


def lose_rank_0_with_the_store(rank, size):
    port = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        port[0] = server.port
    dist.broadcast(port, 0)
    dist.destroy_process_group()
    store = TCPStore("127.0.0.1", int(port), is_master=False)
    dist.init_process_group("afflux", store=store, rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        time.sleep(0.5)
        kill(rank)
    return caught(lambda: dist.all_reduce(torch.ones(3)))


def test_a_rank_that_takes_the_store_with_it_is_named_at_once():
    environment = {"AFFLUX_AGGREGATOR": "streams://"}
    outcomes = run_ranks(lose_rank_0_with_the_store, 3, environment=environment, timeout_s=60)
    for rank in (1, 2):
        message, kind, seconds = outcomes[rank].value
        assert kind == "RanksEnded", message
        assert "rank(s) 0 ended or closed the group" in message
        assert seconds < AT_ONCE_S


def leave_first(rank, _size, folder):
    total = torch.full((100_000,), float(rank))
    dist.all_reduce(total)
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
    if rank == 1:
        dist.destroy_process_group()
        (Path(folder) / "left").touch()
        return total[0].item()
    for work in works:
        work.wait()
    while not (Path(folder) / "left").exists():
        time.sleep(0.01)
    # A call that is over stays over, and the end of the group does not belong to it.
    dist.destroy_process_group()
    return total[0].item()


@pytest.mark.parametrize("url", ["streams://", "soft://"])
def test_who_leaves_when_all_is_done_fails_nobody(url, tmp_path):
    environment = {"AFFLUX_AGGREGATOR": url}
    assert values(run_ranks(leave_first, 3, str(tmp_path), environment=environment)) == [3.0] * 3


def sum_until_it_fails(rank, _size, folder):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        (Path(folder) / "pid").write_text(str(os.getpid()))
    latest = slowest = 0.0

    def sums():
        nonlocal latest, slowest
        while True:
            latest = time.monotonic()
            dist.all_reduce(torch.ones(10_000))
            slowest = max(slowest, time.monotonic() - latest)

    message, kind, _ = caught(sums)
    return message, kind, slowest, time.monotonic() - latest


@pytest.mark.parametrize("ipv4", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_host_that_vanishes_is_named_in_seconds_and_a_stopped_process_is_waited_for(
    ipv4, tmp_path
):
    stopped_s = 5.0

    def stop_and_vanish(made):
        note = tmp_path / "pid"
        deadline = time.monotonic() + 60
        while not (note.exists() and note.read_text()):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
        pid = int(note.read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(stopped_s)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)
        made.unplug(made.hosts[1])

    with network(hosts=2, aggregators=0, ipv4=ipv4) as made:
        thread = threading.Thread(target=stop_and_vanish, args=(made,))
        thread.start()
        outcomes = values(
            run_ranks(
                sum_until_it_fails,
                2,
                str(tmp_path),
                environment={"AFFLUX_AGGREGATOR": "streams://"},
                timeout_s=60,
                hosts=made.hosts,
            )
        )
        thread.join()
    message, kind, slowest, took = outcomes[0]
    assert kind == "RanksEnded", message
    assert f"rank 1 at {made.hosts[1].address}: its host has not answered for 3 s" in message
    assert slowest > stopped_s - 1
    # Below AFFLUX_PEER_TIMEOUT's ten seconds.
    assert took < 5.0 + 3.0
    assert outcomes[1][1] == "RanksEnded", outcomes[1][0]
