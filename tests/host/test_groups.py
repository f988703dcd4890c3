"""Several groups, many operations in flight, and what groups leave behind."""

import os
import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import launched_aggregator
from tests.support.host.ranks import failure_heard, run_ranks, values


def has_ended(work):
    # Of a Work of a backend in Python, torch keeps no more than the future.
    return work.get_future().done() if type(work) is dist.Work else work.is_completed()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def use_subsets(rank, size):
    evens, odds = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine = evens if rank % 2 == 0 else odds
    tensor = torch.full((1000,), float(rank))
    dist.all_reduce(tensor, group=mine)
    everyone = torch.ones(10)
    dist.all_reduce(everyone)
    broadcast = torch.tensor([rank])
    dist.broadcast(broadcast, src=0 if rank % 2 == 0 else 1, group=mine)
    numbers = afflux.statistics(mine)
    dist.destroy_process_group(mine)
    again = torch.ones(3)
    dist.all_reduce(again)
    return tensor[0].item(), everyone[0].item(), broadcast.item(), numbers["rank"], again[0].item()


@pytest.mark.usefixtures("engine")
def test_subsets():
    got = values(run_ranks(use_subsets, 4))
    assert got == [(2, 4, 0, 0, 4), (4, 4, 1, 0, 4), (2, 4, 0, 1, 4), (4, 4, 1, 1, 4)]


SOFT = {"AFFLUX_AGGREGATOR": "soft://"}


def share_a_child(rank, _size):
    groups = [dist.new_group() for _ in range(5)]
    processes = [each.process.pid for each in launched_aggregator._launched.values()]
    for number, group in enumerate(groups):
        tensor = torch.ones(3) * number
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == 2 * number
    dist.destroy_process_group()
    return processes, len(launched_aggregator._launched), [alive(pid) for pid in processes]


def test_groups_share_one_aggregator_which_ends_with_the_last():
    got = values(run_ranks(share_a_child, 2, environment=SOFT))
    assert len(got[0][0]) == 1
    assert got[0][1:] == (0, [False])
    assert got[1][0] == []


def wait_in_any_order(rank, _size):
    tensors = [torch.full((100 * (n + 1),), float(n + rank)) for n in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    order = torch.randperm(20, generator=torch.Generator().manual_seed(rank)).tolist()
    for n in order:
        works[n].wait()
        works[n].wait()
    assert all(has_ended(work) and work.is_success() for work in works)
    return [tensor[-1].item() for tensor in tensors]


@pytest.mark.usefixtures("engine")
def test_works_may_be_waited_for_in_any_order():
    for got in values(run_ranks(wait_in_any_order, 3)):
        assert got == [3 * n + 3 for n in range(20)]


def mix_ways(rank, size):
    floats, products = torch.ones(50_000), torch.full((50_000,), 2.0)
    gathered = [torch.empty(3) for _ in range(size)] if rank == 0 else None
    for _ in range(5):
        works = [
            dist.all_reduce(floats, async_op=True),
            dist.all_reduce(products, op=dist.ReduceOp.PRODUCT, async_op=True),
            dist.gather(torch.full((3,), float(rank)), gathered, async_op=True),
            dist.barrier(async_op=True),
        ]
        for work in reversed(works):
            work.wait()
    numbers = afflux.statistics()
    first = [each[0].item() for each in gathered or []]
    return floats[0].item(), products[0].item(), first, numbers["gloo"]


@pytest.mark.usefixtures("engine")
def test_engine_and_gloo_in_one_order():
    for rank, (floats, products, gathered, gloo) in enumerate(values(run_ranks(mix_ways, 2))):
        assert floats == 2**5
        assert products == 2**32
        assert gathered == ([0, 1] if rank == 0 else [])
        assert gloo == {"all_reduce float32": 5, "gather float32": 5}


def use_callbacks(rank, _size):
    first, second = torch.ones(10), torch.ones(10)

    def then_reduce_again(future):
        (tensor,) = future.value()
        # A collective inside a callback, waited for there: as PowerSGD does.
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    chained = dist.all_reduce(first, async_op=True).get_future().then(then_reduce_again)
    other = dist.all_reduce(second, async_op=True)
    result = chained.wait()
    other.wait()
    return result[0].item(), first[0].item(), second[0].item()


@pytest.mark.usefixtures("engine")
def test_a_callback_may_start_and_wait_for_a_collective():
    assert values(run_ranks(use_callbacks, 2)) == [(4, 4, 2), (4, 4, 2)]


def fail_in_a_future(rank, _size):
    future = dist.all_reduce(torch.ones(3 + rank), async_op=True).get_future()
    try:
        future.wait()
    except Exception as error:
        return str(error)
    return "no error"


@pytest.mark.usefixtures("engine")
def test_a_failed_future_raises():
    for message in values(run_ranks(fail_in_a_future, 2)):
        assert "rank 1: all_reduce sum float32 (4,)" in message


def keep_alive_statistics(rank, size):
    for _ in range(3):
        dist.all_reduce(torch.ones(1000))
    dist.barrier()
    return afflux.statistics(), afflux.engine_counters() if rank == 0 else None


@pytest.mark.parametrize("loss", [pytest.param("0", marks=pytest.mark.long), "0.05"])
def test_each_block_is_counted_once(loss):
    environment = {**SOFT, "AFFLUX_TEST_LOSS": loss}
    got = values(run_ranks(keep_alive_statistics, 3, environment=environment))
    numbers = [each[0] for each in got]
    counters = got[0][1]
    assert counters["blocks_accepted"] == sum(each["blocks_sent"] for each in numbers)
    assert counters["joins"] >= 3
    assert all(each["operations_engine"] == 4 for each in numbers)
    lost = sum(each["dropped_sent"] + each["dropped_received"] for each in numbers)
    assert (lost > 0) == (loss != "0")


def start_again(rank, size):
    dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()
    store = dist.FileStore(os.environ["AGAIN"], size)
    dist.init_process_group("afflux", store=store, rank=rank, world_size=size)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor.tolist()


@pytest.mark.usefixtures("engine")
def test_a_process_may_have_one_group_after_another(tmp_path):
    environment = {"AGAIN": str(tmp_path / "again")}
    assert values(run_ranks(start_again, 2, environment=environment)) == [[2, 2, 2]] * 2


def destroy_in_flight(rank, _size):
    works = [dist.all_reduce(torch.ones(200_000), async_op=True) for _ in range(5)]
    started = time.monotonic()
    dist.destroy_process_group()
    return time.monotonic() - started, [work.is_success() for work in works]


@pytest.mark.usefixtures("engine")
def test_destroy_carries_out_what_is_in_flight():
    for seconds, success in values(run_ranks(destroy_in_flight, 2)):
        assert success == [True] * 5
        assert seconds < 10


def destroy_without_the_others(rank, _size):
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        time.sleep(3)
        return 0, [True]
    works = [dist.all_reduce(torch.ones(200), async_op=True)]
    started = time.monotonic()
    dist.destroy_process_group()
    return time.monotonic() - started, [has_ended(work) for work in works]


@pytest.mark.usefixtures("engine")
def test_destroy_does_not_wait_for_ever():
    environment = {"AFFLUX_CLOSE_TIMEOUT": "1"}
    for seconds, ended in values(run_ranks(destroy_without_the_others, 2, environment=environment)):
        assert ended == [True]
        assert seconds < 6


def use_after_rank_0_closed(rank, _size):
    dist.all_reduce(torch.ones(3))
    if rank == 0:
        dist.destroy_process_group()
        return "", 0
    failure_heard()
    started = time.monotonic()
    try:
        dist.all_reduce(torch.ones(3))
    except Exception as error:
        return str(error), time.monotonic() - started
    return "no error", 0


@pytest.mark.usefixtures("engine")
def test_use_after_rank_0_has_destroyed_the_group():
    message, seconds = values(run_ranks(use_after_rank_0_closed, 2))[1]
    assert "rank 0 has destroyed the group" in message
    # The timeout of an operation is 20 s.
    assert seconds < 10
