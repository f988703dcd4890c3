"""Operations that cannot succeed: an error at every rank that says what happened, soon."""

import os
import re
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import launched_aggregator
from tests.support.host.ranks import caught, failure_heard, run_ranks, values

SOFT = {"AFFLUX_AGGREGATOR": "soft://"}


# Disagreement.


def sum_of(shape, dtype=torch.float32, op=dist.ReduceOp.SUM):
    return lambda: dist.all_reduce(torch.ones(shape, dtype=dtype), op=op)


DISAGREEMENTS = {
    "shape": [sum_of((3, 4)), sum_of((3, 4)), sum_of((12,))],
    "shape, many blocks": [sum_of((300, 400)), sum_of((300, 400)), sum_of((300, 401))],
    "few against many": [sum_of((3,)), sum_of((300, 400)), sum_of((3,))],
    "dtype": [sum_of((5,)), sum_of((5,), torch.float16), sum_of((5,))],
    "op": [sum_of((5,)), sum_of((5,)), sum_of((5,), op=dist.ReduceOp.MAX)],
    "sum and average": [sum_of((5000,)), sum_of((5000,)), sum_of((5000,), op=dist.ReduceOp.AVG)],
    "engine and Gloo": [sum_of((5,)), lambda: dist.broadcast(torch.ones(5), 0), sum_of((5,))],
    "dtype for Gloo": [sum_of((5,)), sum_of((5,), torch.float64), sum_of((5,))],
    "order": [
        lambda: (dist.barrier(), dist.all_reduce(torch.ones(1))),
        lambda: (dist.all_reduce(torch.ones(1)), dist.barrier()),
        lambda: (dist.barrier(), dist.all_reduce(torch.ones(1))),
    ],
    "root": [
        lambda: dist.broadcast(torch.ones(5), 0),
        lambda: dist.broadcast(torch.ones(5), 1),
        lambda: dist.broadcast(torch.ones(5), 0),
    ],
    "size of a Gloo sum": [
        sum_of((5,), torch.float64),
        sum_of((6,), torch.float64),
        sum_of((5,), torch.float64),
    ],
}


def disagree(rank, _size, which):
    dist.all_reduce(torch.ones(100))
    first = caught(DISAGREEMENTS[which][rank])
    later = caught(lambda: dist.all_reduce(torch.ones(3)))
    return first, later


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("which", DISAGREEMENTS)
def test_every_rank_learns_what_each_asked_for(which):
    for (message, kind, seconds), later in values(run_ranks(disagree, 3, which)):
        assert kind == "Disagreement", message
        assert seconds < 5
        for rank in range(3):
            assert f"rank {rank}: " in message
        error, *first_failure = message.partition(" [rank 0: ")[0].split("; first failure")
        assert error.count("operation 2") == 1
        assert all(text.count("operation 2") <= 1 for text in first_failure)
        assert not re.search(r"\d:(sum|avg|max|min):", message), "the worker's own number as well"
        assert later[2] < 0.5
        assert "failed before" in later[0]
        assert later[1] == "GroupFailed"


@pytest.mark.usefixtures("engine")
def test_the_message_shows_both_shapes():
    for (message, _, _), _ in values(run_ranks(disagree, 3, "shape")):
        assert "rank 0: all_reduce sum float32 (3, 4) (operation 2)" in message
        assert "rank 2: all_reduce sum float32 (12,) (operation 2)" in message


# A rank that does not come.


def stay_away(rank, _size):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        failure_heard()
    return caught(lambda: dist.all_reduce(torch.ones(3, 4)))


@pytest.mark.usefixtures("engine")
def test_a_rank_that_never_comes_is_named_at_every_rank():
    outcomes = values(run_ranks(stay_away, 3, timeout_s=2))
    for rank, (message, kind, seconds) in enumerate(outcomes):
        assert "all_reduce sum float32 (3, 4)" in message
        assert "operation 2" in message
        assert " Timed out waiting 2000ms " in message if rank != 1 else "2 s" in message
        assert "rank(s) 1" in message
        assert "rank 1: nothing since all_reduce sum float32 (1,) (operation 1)" in message
        if rank == 1:
            # It knows before it calls; a call of its own would take 2 s to fail.
            assert seconds < 1.9
        else:
            assert kind in ("RanksMissing", "GroupFailed")
            assert 1.9 < seconds < 7


def stay_away_from_gloo(rank, _size):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        failure_heard()
    return caught(lambda: dist.broadcast(torch.ones(3), 0))


@pytest.mark.usefixtures("engine")
def test_a_rank_that_never_comes_to_gloo_is_named_too():
    for message, _, seconds in values(run_ranks(stay_away_from_gloo, 3, timeout_s=2)):
        assert "broadcast float32 (3,)" in message
        assert "rank(s) 1" in message
        assert seconds < 7


def die(rank, _size):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        os._exit(3)
    return caught(lambda: dist.all_reduce(torch.ones(3)))


@pytest.mark.usefixtures("engine")
def test_a_rank_that_died_is_named():
    outcomes = run_ranks(die, 3, timeout_s=2)
    assert outcomes[1].kind == "died"
    for rank in (0, 2):
        message, _, seconds = outcomes[rank].value
        assert "rank(s) 1" in message
        assert "rank 1: does not answer" in message
        assert seconds < 7


# A wait that times out is its caller's own affair.


CALLS = {
    "all_reduce": lambda tensor: dist.all_reduce(tensor, async_op=True),
    # Gloo's, in the same thread.
    "reduce": lambda tensor: dist.reduce(tensor, 0, async_op=True),
    "sparse": lambda tensor: dist.all_reduce(tensor.to_sparse(), async_op=True),
}


def wait_impatiently(rank, size, name):
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(1))
    tensor = torch.ones(2)
    if rank == 1:
        # It comes when the other one has waited in vain, twice.
        store.wait(["waited"])
        CALLS[name](tensor).wait()
        seen = None
    else:
        work = CALLS[name](tensor)
        found = [caught(lambda: work.wait(timedelta(seconds=0.3))) for _ in range(2)]
        seen = [each[:2] for each in found], work.is_completed(), work.exception()
        store.set("waited", "1")
        work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert torch.equal(work.get_future().wait()[0].to_dense(), torch.full((2,), float(size)))
    # The group goes on.
    after = torch.ones(3)
    dist.all_reduce(after)
    assert torch.equal(after, torch.full((3,), float(size)))
    return seen


@pytest.mark.parametrize(
    ("url", "adapter", "name"),
    [
        *(("shm://", "native", name) for name in CALLS),
        *(pytest.param("shm://", "python", name, marks=pytest.mark.long) for name in CALLS),
        ("soft://", "native", "all_reduce"),
        ("streams://", "python", "all_reduce"),
    ],
)
def test_a_wait_that_times_out_ends_nothing_but_itself(url, adapter, name):
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_ADAPTER": adapter}
    errors, completed, exception = values(
        run_ranks(wait_impatiently, 2, name, environment=environment)
    )[0]
    assert not completed
    assert exception is None
    for message, kind in errors:
        assert kind == "OperationTimeout"
        assert message.endswith(": wait() timed out after 0.3 s; the operation goes on")


def wait_in_vain(rank, _size):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        failure_heard()
        return caught(lambda: dist.all_reduce(torch.ones(2)))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    caught(lambda: work.wait(timedelta(seconds=0.2)))
    return caught(work.wait)


@pytest.mark.usefixtures("engine")
def test_the_groups_own_timeout_stays_what_it_is():
    first, _ = values(run_ranks(wait_in_vain, 2, timeout_s=2))
    assert first[1] == "RanksMissing"
    assert "rank(s) 1" in first[0]


# An aggregator that dies, where nothing may take its place; else see `test_fail_over.py`.


def lose_the_aggregator(rank, _size):
    dist.all_reduce(torch.ones(10))
    # The others may still need their result sent again.
    time.sleep(1)
    if rank == 0:
        (aggregator,) = launched_aggregator._launched.values()
        os.kill(aggregator.process.pid, signal.SIGKILL)
    return caught(lambda: dist.all_reduce(torch.ones(50_000)))


def test_an_aggregator_that_dies_is_named_at_every_rank():
    environment = {**SOFT, "AFFLUX_PEER_TIMEOUT": "1", "AFFLUX_REQUIRE": "1"}
    outcomes = values(run_ranks(lose_the_aggregator, 3, environment=environment))
    for message, kind, seconds in outcomes:
        assert kind in ("AggregatorUnreachable", "GroupFailed")
        assert "aggregator at 127.0.0.1:" in message
        assert seconds < 7


def lose_the_aggregator_and_wait(rank, _size):
    dist.all_reduce(torch.ones(10))
    works = [dist.all_reduce(torch.ones(400_000), async_op=True) for _ in range(5)]
    if rank == 0:
        (aggregator,) = launched_aggregator._launched.values()
        os.kill(aggregator.process.pid, signal.SIGKILL)
    return [caught(work.wait) for work in works], [work.is_completed() for work in works]


def test_every_queued_work_ends():
    environment = {**SOFT, "AFFLUX_PEER_TIMEOUT": "1", "AFFLUX_REQUIRE": "1"}
    outcomes = values(run_ranks(lose_the_aggregator_and_wait, 2, environment=environment))
    for errors, completed in outcomes:
        assert all(completed)
        assert errors[-1][1] != "nothing raised"


# Wrong arguments: an error here, and the group goes on.


def call_wrongly(_rank, _size):
    errors = [
        caught(lambda: dist.all_reduce(torch.ones(1).expand(3))),
        caught(lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2))),
        caught(lambda: dist.broadcast(torch.ones(3), 2)),
        caught(lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BAND)),
    ]
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return errors, tensor.tolist()


@pytest.mark.usefixtures("engine")
def test_wrong_arguments_leave_the_group_usable():
    for errors, tensor in values(run_ranks(call_wrongly, 2)):
        assert tensor == [2, 2, 2]
        assert "share memory (strides (0,))" in errors[0][0]
        assert errors[0][1] == errors[1][1] == "ValueError"
        assert "shape (2,)" in errors[1][0]
        assert "2 ranks" in errors[1][0]
        assert all(kind != "nothing raised" for _, kind, _ in errors)


def one_calls_wrongly(rank, _size, call):
    dist.all_reduce(torch.ones(1))
    tensor = torch.ones(1).expand(3) if rank == 1 else torch.ones(3)
    root = 2 if rank == 1 else 0
    if call == "all_reduce":
        return caught(lambda: dist.all_reduce(tensor))
    return caught(lambda: dist.reduce(torch.ones(3), root))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("call", ["all_reduce", "reduce"])
def test_a_mistake_of_one_rank_is_named_at_the_others_soon(call):
    first, wrong = values(run_ranks(one_calls_wrongly, 2, call, timeout_s=15))
    assert wrong[1] in ("ValueError", "RuntimeError", "CallRefused", "Disagreement")
    assert first[2] < 5
    assert "rank 1" in first[0]
    assert "(operation 2)" in first[0]


def fork_and_use(_rank, _size):
    dist.all_reduce(torch.ones(3))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            message, kind, _ = caught(lambda: dist.all_reduce(torch.ones(3)))
            os.write(writing, f"{kind}: {message}".encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    said = os.read(reading, 4096).decode()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return said, tensor.tolist()


@pytest.mark.usefixtures("engine")
def test_a_forked_process_cannot_use_the_group():
    for said, tensor in values(run_ranks(fork_and_use, 2)):
        assert said.startswith("GroupClosed: this group belongs to process")
        assert tensor == [2, 2, 2]


def statistics_of_others(_rank, _size):
    gloo = dist.new_group(backend="gloo")
    said = caught(lambda: afflux.statistics(gloo))
    # Gloo fails at a rank whose peer ends while they connect.
    dist.barrier()
    return said


def test_statistics_of_a_foreign_group():
    for message, kind, _ in values(run_ranks(statistics_of_others, 2)):
        assert kind == "TypeError"
        assert "afflux" in message
