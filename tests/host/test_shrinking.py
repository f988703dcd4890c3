"""Groups of the ranks that are left: after a death, or because one leaves."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tests.support.host.digests import ENGINES, digest, fresh
from tests.support.host.ranks import run_ranks, values

ABORT = 1
"""torch's SHRINK_ABORT."""


def left_by(rank, size, dead, dies):
    """Sum, lose ranks one after the other, and sum again each time; return digests and seconds."""
    found = []
    digest(rank)
    for gone in dead:
        now = dist.get_rank()
        if now == gone:
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return "left"
        if dies:
            with pytest.raises(Exception, match=r"ended|closed|left"):
                for _ in range(3):
                    dist.all_reduce(torch.ones(1000))
        start = time.monotonic()
        dist.shrink_group([gone], shrink_flags=ABORT if dies else 0)
        found.append((dist.get_world_size(), digest(rank), time.monotonic() - start))
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dies", [True, False], ids=["killed", "leaves"])
def test_the_others_sum_on_with_the_bits_of_a_fresh_group(engine, dies):
    environment = ENGINES[engine]
    # First the one that has handed out the memory, or begun the aggregator, stays; see below.
    outcomes = run_ranks(left_by, 4, (2, 1), dies, environment=environment)
    threes = set(values(run_ranks(fresh, 3, (0, 1, 3), environment=environment)))
    twos = set(values(run_ranks(fresh, 2, (0, 3), environment=environment)))
    assert len(threes) == len(twos) == 1
    for rank in (0, 3):
        assert not outcomes[rank].failed, outcomes[rank]
        assert [(3, *threes), (2, *twos)] == [each[:2] for each in outcomes[rank].value]
        assert all(seconds < 10 for *_, seconds in outcomes[rank].value)


@pytest.mark.parametrize("engine", ["shm", "streams", "gloo"])
def test_rank_0_may_die_too(engine):
    environment = ENGINES[engine]
    outcomes = run_ranks(left_by, 3, (0,), True, environment=environment)
    twos = set(values(run_ranks(fresh, 2, (1, 2), environment=environment)))
    for rank in (1, 2):
        assert not outcomes[rank].failed, outcomes[rank]
        assert [(2, *twos)] == [each[:2] for each in outcomes[rank].value]


def disagreeing(rank, _size):
    if rank == 2:
        time.sleep(1)
        return ""
    with pytest.raises(RuntimeError) as caught:
        dist.shrink_group([2] if rank == 0 else [2, 3])
    return str(caught.value)


def test_ranks_that_leave_out_others_are_told_so():
    told = values(run_ranks(disagreeing, 4, timeout_s=5))
    assert "at rank 0, which leaves out [2]: rank 1" in told[0]
    # By its own comparison, or because the other one has given up.
    assert "at rank 1, which leaves out [2, 3]: rank 0" in told[1]


def waiting(rank, _size):
    if rank:
        return "", 0.0
    start = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        dist.shrink_group([2])
    return str(caught.value), time.monotonic() - start


def test_a_rank_that_does_not_call_ends_the_wait():
    text, seconds = values(run_ranks(waiting, 3, timeout_s=2))[0]
    assert "waited 2 s for rank 1 to call shrink_group" in text
    assert seconds < 5


def one_after_the_other(rank, _size):
    """Rank 0 gives up before rank 1 comes; then both come."""
    if rank == 2:
        return ""
    time.sleep(3 * rank)
    start = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        dist.shrink_group([2])
    took_s = time.monotonic() - start
    dist.shrink_group([2])
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 3
    assert rank == 0 or took_s < 1
    return str(caught.value)


def test_a_rank_that_comes_too_late_is_told_so_and_the_next_attempt_is_common():
    first, second, _ = values(run_ranks(one_after_the_other, 3, timeout_s=2))
    assert "waited 2 s for rank 1 to call shrink_group" in first
    assert f"rank 0 has given up: {first}" in second


def of_some(rank, _size):
    group = dist.new_group([0, 1, 2])
    if rank in (1, 3):
        return None
    smaller = dist.shrink_group([1], group)
    tensor = torch.full((3,), float(rank + 1))
    dist.all_reduce(tensor, group=smaller)
    return tensor.tolist()


def test_a_group_of_some_ranks_shrinks():
    assert values(run_ranks(of_some, 4)) == [[4.0] * 3, None, [4.0] * 3, None]


def without_the_store(rank, size):
    """Let the rank that has the store die; return how shrink_group ends."""
    port = torch.zeros(1, dtype=torch.int64)
    if rank == 2:
        server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        port[0] = server.port
    dist.broadcast(port, 2)
    dist.destroy_process_group()
    store = TCPStore("127.0.0.1", int(port), is_master=False)
    dist.init_process_group("afflux", store=store, rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1))
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError):
        for _ in range(3):
            dist.all_reduce(torch.ones(1000))
    with pytest.raises(RuntimeError) as caught:
        dist.shrink_group([2], shrink_flags=ABORT)
    return type(caught.value).__name__, str(caught.value)


def test_without_its_store_no_smaller_group_is_made_and_the_error_says_so():
    for outcome in run_ranks(without_the_store, 3)[:2]:
        kind, text = outcome.value
        assert kind == "RendezvousError", text
        assert f"shrink_group at rank {outcome.rank}, which leaves out [2]: the store" in text
