"""Groups whose tensors go to shards or to Gloo, each by itself."""

import signal
import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.autotune import calibration
from afflux.group.autotune.path_history import Way
from afflux.group.autotune.rates import Rates
from afflux.group_statistics import group_of
from tests.support.host.network import network
from tests.support.host.ranks import caught, run_ranks, values

MIB = 1 << 20

FAST = Rates([(MIB, 0.004, 0.0002, 0.002)])
"""Dense tensors are for Gloo, sparse ones for shards."""

SLOW = Rates([(MIB, 0.1, 0.001, 0.05)])
"""The same on a slow network."""

DOUBTFUL = Rates([(MIB, 0.1, 0.01, 0.1)])
"""Dense tensors are tried both ways."""

COUNT = MIB // 4


def made(rates):
    """Make a group after a calibration that has come to these rates."""
    calibration._outcomes.clear()
    setattr(calibration, "_measured", lambda *_: rates)  # noqa: B010 - a function, for mypy
    return dist.new_group(backend="afflux")


def dense(dtype=torch.float32):
    return torch.ones(COUNT, dtype=dtype)


def sparse():
    tensor = torch.zeros(COUNT)
    tensor[640:700] = 1.0
    return tensor


def summed(tensor, group, op=dist.ReduceOp.SUM, asynchronous=False):
    """Sum a tensor of ones and zeros; return whether the sums are right."""
    factor = dist.get_world_size() if op == dist.ReduceOp.SUM else 1
    expected = tensor * factor
    work = dist.all_reduce(tensor, op, group=group, async_op=asynchronous)
    if asynchronous:
        work.wait()
    return torch.equal(tensor, expected)


def by_way(rank, size):
    group = made(FAST)
    right, ways = [], []
    core = group_of(group)

    def call(*arguments):
        before = core.gloo_counts().get("all_reduce float32", 0)
        right.append(summed(arguments[0], group, *arguments[1:]))
        ways.append(core.gloo_counts().get("all_reduce float32", 0) - before)

    for tensor in dense(), dense(), sparse(), sparse(), dense(), torch.ones(100), sparse():
        call(tensor)
    # Whatever their strides, and whichever rank waits.
    call(dense().view(512, 512).t())
    call(dense(), dist.ReduceOp.SUM, True)
    call(dense(), dist.ReduceOp.AVG)
    # These shards alone sum alike.
    call(dense(torch.int32))
    call(dense(), dist.ReduceOp.MAX)
    right += [summed(dense(torch.bfloat16), group, dist.ReduceOp.AVG) for _ in range(2)]
    found = afflux.statistics(group)
    return right, ways, found, afflux.statistics(made(FAST))["topology_reason"]


def test_each_tensor_takes_its_way():
    with network(hosts=3, aggregators=0, gbit=None) as hosts:
        outcomes = values(run_ranks(by_way, 3, hosts=hosts.hosts))
    for right, ways, found, again in outcomes:
        assert all(right)
        assert ways == outcomes[0][1]
        # The dense one's result is known to all only after some calls.
        assert ways == [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0]
        assert (found["engine"], found["topology"]) == ("soft", "shards")
        assert found["operations_gloo"] == 11
        assert found["operations_engine"] == 3
        kind = found["choices"]["all_reduce sum float32 262144"]
        assert (kind["way"], kind["shards"], kind["gloo"]) == ("gloo", 0, 8)
        assert found["gloo"] == {"all_reduce float32": 9, "all_reduce bfloat16": 2}
        assert again == found["topology_reason"]


def several(rank, size, points, fill, calls):
    group = made(Rates(points))
    right = [summed(fill(), group) for _ in range(calls)]
    (choice,) = afflux.statistics(group)["choices"].values()
    return right, choice


def test_mostly_zero_tensors_go_to_shards_where_dense_ones_do_not():
    with network(hosts=2, aggregators=0, gbit=None) as hosts:
        for right, choice in values(
            run_ranks(several, 4, FAST.points, sparse, 5, hosts=hosts.hosts)
        ):
            assert all(right)
            assert (choice["way"], choice["gloo"], choice["shards"]) == ("shards", 1, 4)


def test_ranks_try_both_ways_and_come_to_one():
    with network(hosts=2, aggregators=0, gbit=None) as hosts:
        outcomes = values(run_ranks(several, 2, DOUBTFUL.points, dense, 12, hosts=hosts.hosts))
    assert outcomes[0] == outcomes[1]
    right, choice = outcomes[0]
    assert all(right)
    assert choice["reason"].startswith("shards took ")
    assert choice["gloo"] >= 2


def by_turns(rank, size):
    """Sum a dense and a sparse tensor of one size in turns; return which of them Gloo took."""
    group = made(Rates(SLOW.points))
    core = group_of(group)
    steps = []
    for _ in range(6):
        step = []
        for fill in dense, sparse:
            before = core.gloo_counts().get("all_reduce float32", 0)
            # Only one rank has something in the sparse one.
            tensor = fill() if rank == 0 or fill is dense else torch.zeros(COUNT)
            dist.all_reduce(tensor, group=group)
            assert torch.equal(tensor, dense() * size if fill is dense else sparse())
            step.append(core.gloo_counts().get("all_reduce float32", 0) > before)
        steps.append(step)
    return steps


def test_tensors_of_one_size_take_their_ways_by_turns():
    with network(hosts=2, aggregators=0, gbit=None) as hosts:
        for steps in values(run_ranks(by_turns, 2, hosts=hosts.hosts)):
            assert steps[-3:] == [[True, False]] * 3


def differing(rank, size, calls):
    """After some calls one rank would choose otherwise."""
    group = made(FAST)
    for _ in range(calls):
        assert summed(dense(), group)
    (history,) = group_of(group).reducer._histories.values()
    if rank == 1:
        history._choice.way = Way.SHARDS
    return caught(lambda: summed(dense(), group))


# Before the second and the eighteenth call the ranks compare what they are about to do.
@pytest.mark.parametrize("calls", [1, pytest.param(5, marks=pytest.mark.long), 18])
def test_ranks_that_choose_otherwise_get_an_error(calls):
    with network(hosts=3, aggregators=0, gbit=None) as hosts:
        for message, _, seconds in values(run_ranks(differing, 3, calls, hosts=hosts.hosts)):
            assert "the ranks disagree" in message
            assert seconds < 15


def other_call(rank, size, name):
    group = made(FAST)
    for _ in range(5):
        assert summed(dense(), group)
    if rank == 0:
        return caught(lambda: summed(dense(), group))
    if name == "small":
        return caught(lambda: summed(torch.ones(10), group))
    return caught(lambda: dist.broadcast(torch.ones(10), 0, group=group))


@pytest.mark.parametrize("name", ["small", "broadcast"])
def test_a_rank_that_calls_something_else_gets_an_error(name):
    with network(hosts=2, aggregators=0, gbit=None) as hosts:
        for message, _, seconds in values(run_ranks(other_call, 2, name, hosts=hosts.hosts)):
            assert "the ranks disagree" in message
            assert seconds < 15


def nested(rank, size, rates):
    """Let signals come while rank 0 waits for rank 1: in each kind of wait."""
    group = made(rates)
    right = []

    def handle(*_):
        right.append(summed(sparse(), group))

    signal.signal(signal.SIGALRM, handle)
    for _ in range(5):
        if rank == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
        else:
            time.sleep(0.7)
        right.append(summed(dense(), group))
        if rank == 1:
            handle()
    choices = afflux.statistics(group)["choices"]
    return right, choices, [each.state for each in group_of(group).reducer._histories.values()]


@pytest.mark.parametrize("rates", [FAST, pytest.param(DOUBTFUL, marks=pytest.mark.long)])
def test_a_signal_handler_may_call_in_the_midst_of_a_call(rates):
    with network(hosts=2, aggregators=0, gbit=None) as hosts:
        points = Rates(rates.points)
        outcomes = values(run_ranks(nested, 2, points, hosts=hosts.hosts))
    for right, choices, states in outcomes:
        assert right == [True] * 10
        assert states == outcomes[0][2]
        assert choices == outcomes[0][1]
