"""The thread that carries operations out: beside Python, and at the edges of its life."""

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from afflux.group.call.description import Call, KnownCall
from afflux.group.call.errors import GroupClosed
from afflux.group_statistics import group_of
from tests.support.host.ranks import run_ranks, values

SHARED = {"AFFLUX_AGGREGATOR": "shm://"}


def compute_meanwhile(rank, size):
    tensor = torch.ones(1000)
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    if rank == 1:
        store.wait(["has computed"])
    work = dist.all_reduce(tensor, async_op=True)
    late = not work.is_completed()
    deadline = time.monotonic() + 10
    turns = 0
    # Nobody waits for it: Python goes on.
    while not work.is_completed() and time.monotonic() < deadline:
        turns += sum(range(1000)) > 0
        if turns == 200:
            store.set("has computed", "")
    return late, turns, work.is_success(), tensor[0].item()


def test_operations_run_while_python_computes():
    (first, second) = values(run_ranks(compute_meanwhile, 2, environment=SHARED))
    assert first[0]
    assert first[1] >= 200
    assert (first[2:], second[2:]) == ((True, 2.0), (True, 2.0))


def reduce_at_once(rank, size):
    group, options = dist.group.WORLD, dist.AllreduceOptions()
    options.asyncOp = False
    tensor = torch.ones(10)
    alone = group.allreduce([tensor], options)
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    if rank == 1:
        store.wait(["has looked"])
    before = dist.all_reduce(torch.ones(1000), async_op=True)
    behind = group.allreduce([tensor], options)
    over = behind.is_completed()
    store.set("has looked", "")
    behind.wait()
    before.wait()
    return alone.is_completed(), over, tensor[0].item()


def test_a_synchronous_call_is_over_when_it_returns_unless_others_are_before_it():
    first, second = values(run_ranks(reduce_at_once, 2, environment=SHARED))
    # Behind an operation that waits for the other rank it is queued.
    assert first == (True, False, 4.0)
    assert (second[0], second[2]) == (True, 4.0)


def queue_one(rank, _size):
    def threads():
        names = [each.name for each in threading.enumerate()]
        return sum(name.startswith("afflux-") and name.endswith(f"rank{rank}") for name in names)

    dist.all_reduce(torch.ones(10))
    dist.barrier()
    before = threads()
    # Too large to be tried in the calling thread.
    dist.all_reduce(torch.ones(1 << 20), async_op=True).wait()
    return before, threads()


def test_there_is_no_thread_until_something_is_queued():
    assert values(run_ranks(queue_one, 2, environment=SHARED)) == [(0, 1), (0, 1)]


def submit_during_the_end(rank, size, slow):
    progress = group_of(None)._progress
    check, checked, calls, ended = progress.check, threading.Event(), [], []

    def sometimes_slow_check():
        check()
        calls.append(1)
        if len(calls) == slow:
            checked.set()
            time.sleep(0.3)

    def submit():
        try:
            ended.append(progress.submit("late", False, list).is_completed)
        except GroupClosed:
            ended.append(lambda: True)

    setattr(progress, "check", sometimes_slow_check)  # noqa: B010 - a method, for mypy
    submitting = threading.Thread(target=submit)
    submitting.start()
    assert checked.wait(10)
    progress.stop(5.0)
    submitting.join()
    (is_ended,) = ended
    return is_ended()


@pytest.mark.parametrize("slow", [1, 2])
def test_what_is_asked_for_during_the_end_comes_to_an_end(slow):
    """The end comes after the first look at whether it has, or after the second."""
    assert values(run_ranks(submit_during_the_end, 1, slow, environment=SHARED)) == [True]


def begin_in_cpp(rank, size):
    """Return how long after the call an operation began that the thread goes on with."""
    reducer = group_of(None).reducer
    store, began = dist.distributed_c10d._get_default_store(), []
    finish = reducer.finish

    def noted(begun, *rest):
        began.append(begun.began_s)
        finish(begun, *rest)

    setattr(reducer, "finish", noted)  # noqa: B010 - a method, for mypy
    dist.barrier()
    began.clear()
    if rank == 1:
        store.wait(["begun"])
    called = time.monotonic()
    work = dist.all_reduce(torch.ones(10), async_op=True)
    store.set("begun", "")
    work.wait()
    return [each - called for each in began]


def test_an_operation_that_another_thread_goes_on_with_has_its_whole_time():
    """C++ tries an asynchronous call for a moment: only that is taken off its time."""
    first, _ = values(run_ranks(begin_in_cpp, 2, environment=SHARED))
    assert all(after >= 0 for after in first), first
    # Without the adapter in C++ no operation is begun there.
    assert len(first) <= 1


def hand_over_in_between(rank, size, what):
    progress = group_of(None)._progress
    turn = progress.turn
    dist.all_reduce(torch.ones(10), async_op=True).wait()
    # The thread gives back the turn after it has ended its Work.
    deadline = time.monotonic() + 10
    while not (entered := turn.try_enter()) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert entered
    turn.begin("begun")
    if what == "news":
        progress._tell()
    else:
        thread = threading.Thread(target=lambda: progress.submit("queued", False, list))
        thread.start()
        thread.join()
    # The progress thread waits for the turn.
    time.sleep(0.2)
    begun = progress.new_work("begun", False)
    progress._finish = lambda _handed: []
    known = KnownCall("begun", "gloo", None, "", Call("begun", "-", "begun", "begun"))
    turn.hand_over((begun, known, (), 5.0, None, 0.0))
    progress.wake()
    begun.wait(timedelta(seconds=5))
    dist.barrier()
    # The thread counts it after it has ended its Work, and given back the turn.
    deadline = time.monotonic() + 10
    while turn.pending and time.monotonic() < deadline:
        time.sleep(0.01)
    return begun.is_success(), turn.pending


@pytest.mark.parametrize("adapter", ["native", "python"])
@pytest.mark.parametrize("what", ["news", "an operation"])
def test_what_has_begun_is_brought_to_its_end_first(adapter, what):
    environment = {**SHARED, "AFFLUX_ADAPTER": adapter}
    found = values(run_ranks(hand_over_in_between, 2, what, environment=environment))
    assert found == [(True, 0)] * 2
