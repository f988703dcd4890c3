"""A group's handling of a call, without torch's dispatcher, a network or other processes."""

import threading

import pytest
import torch
import torch.distributed as dist

from afflux.group.call.errors import CallRefused, GroupClosed, GroupFailed
from afflux.group.reducers.reducer import Comparison
from afflux_drivers.errors import AffluxError
from tests.support.host.fakes import FakeReducer, fake_group


@pytest.fixture
def reducer():
    return FakeReducer()


@pytest.fixture
def group(reducer):
    made = fake_group(reducer)
    yield made
    made.abort()


def options(op=dist.ReduceOp.SUM, asynchronous=False):
    found = dist.AllreduceOptions()
    found.reduceOp = op
    found.asyncOp = asynchronous
    return found


def test_what_the_reducer_plans_is_its_own(group, reducer):
    tensor = torch.ones(3)
    group.allreduce([tensor], options()).wait()
    assert tensor.tolist() == [2.0] * 3
    assert reducer.done == ["run all_reduce sum"]
    assert (group.sequence, group.engine_operations) == (1, 1)


def test_there_is_no_thread_until_there_is_something_to_do(group):
    assert not [each for each in threading.enumerate() if each.name.startswith("afflux-fake-")]
    group.allreduce([torch.ones(3)], options()).wait()
    assert [each for each in threading.enumerate() if each.name.startswith("afflux-fake-")]


@pytest.mark.parametrize(
    ("comparison", "first"),
    [(Comparison.BEFORE, ["agree"]), (Comparison.WITHIN, []), (Comparison.NEVER, [])],
)
def test_all_else_is_gloos_and_the_ranks_compare_it_as_the_reducer_says(comparison, first):
    reducer = FakeReducer(comparison)
    group = fake_group(reducer)
    try:
        history = group.turn.history
        group.allreduce([torch.ones(3)], options(dist.ReduceOp.PRODUCT)).wait()
        group.barrier(dist.BarrierOptions()).wait()
        of_gloo = ["allreduce"] + ["barrier"] * (comparison is Comparison.NEVER)
        assert group.fallback.done == of_gloo
        assert reducer.done == first + ["agree"] * (comparison is not Comparison.NEVER)
        assert (group.turn.history != history) is (comparison is not Comparison.BEFORE)
    finally:
        group.abort()


def test_asynchronous_calls_keep_their_order_and_their_errors(group, reducer):
    go_on = threading.Event()
    reducer.trouble = lambda: go_on.wait(10)
    tensors = [torch.ones(1) for _ in range(3)]
    works = [group.allreduce([each], options(asynchronous=True)) for each in tensors[:2]]
    # A synchronous call stays behind them.
    late = group.allreduce([tensors[2]], options())
    assert not late.is_completed()
    go_on.set()
    for work in [*works, late]:
        assert work.wait()
    assert [each.item() for each in tensors] == [2.0] * 3


def test_a_refused_call_ends_itself_and_an_error_ends_the_group(group, reducer):
    reducer.trouble = CallRefused("no such call")
    with pytest.raises(CallRefused, match="no such call"):
        group.allreduce([torch.ones(1)], options()).wait()
    group.allreduce([torch.ones(1)], options()).wait()
    reducer.trouble = AffluxError("the engine is gone")
    with pytest.raises(AffluxError, match=r"all_reduce sum float32 .*the engine is gone"):
        group.allreduce([torch.ones(1)], options()).wait()
    with pytest.raises(GroupFailed, match="failed before"):
        group.allreduce([torch.ones(1)], options())
    assert reducer.done.count("give up") == 1


def test_a_group_that_has_been_shut_down_takes_nothing(group, reducer):
    group.shutdown()
    assert reducer.done == ["leave"]
    with pytest.raises(GroupClosed):
        group.allreduce([torch.ones(1)], options())


def test_an_interpreter_that_ends_and_starts_no_threads_carries_calls_out_in_place(
    group, reducer, monkeypatch
):
    """As Python does from 3.12 on, for the calls of exit handlers."""

    def refuse(_thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    tensor = torch.ones(3)
    for _ in range(2):
        work = group.allreduce([tensor], options(asynchronous=True))
        assert work.is_completed()
        work.wait()
    assert tensor.tolist() == [4.0] * 3
    assert reducer.done == ["run all_reduce sum"] * 2
    monkeypatch.undo()
