"""Ranks that are gone between hosts, or where ranks share no memory: noticed at once, and named."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from tests.support.host.ranks import caught, run_ranks

AT_ONCE_S = 6.0
"""Far above the half second that it takes, for a busy machine; far below the group's timeout."""

TIMEOUT_S = 20.0


def kill(_rank):
    os.kill(os.getpid(), signal.SIGKILL)


def leave(_rank):
    dist.destroy_process_group()


def exit_without_a_word(_rank):
    os._exit(0)


ENDS = {"killed": kill, "exits": exit_without_a_word, "destroys": leave}


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
    if call == "pending":
        work = dist.all_reduce(tensor, async_op=True)
        return caught(work.wait)
    return caught(lambda: dist.all_reduce(tensor, group=group))


@pytest.mark.parametrize(
    ("url", "end", "call"),
    [
        ("shards://", "killed", "all_reduce"),
        ("shards://", "exits", "pending"),
        ("shards://", "destroys", "all_reduce"),
        ("soft://", "killed", "subgroup"),
        ("soft://", "destroys", "pending"),
        ("gloo://", "killed", "broadcast"),
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
        assert "rank(s) 1 ended or left the group: rank 1 at 127.0.0.1: " in message
        left = {"subgroup": 0}.get(call, 1)
        seen = f"it has left the group after operation {left}" if end == "destroys" else "closed"
        assert seen in message
        assert seconds < AT_ONCE_S
