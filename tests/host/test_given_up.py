"""Operations that C++ has begun, and that an exception ends before Python has taken them over."""

import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist

from afflux.group_statistics import group_of
from tests.support.host.ranks import caught, run_ranks, values

SHM = {"AFFLUX_AGGREGATOR": "shm://"}


def ask_again(dtype):
    """Call in a thread, lest a turn that nobody gives back hold the test up."""
    errors: list[str] = []
    call = lambda: dist.all_reduce(torch.ones(3, dtype=dtype))  # noqa: E731
    thread = threading.Thread(target=lambda: errors.append(caught(call)[0]), daemon=True)
    thread.start()
    thread.join(15)
    return errors[0] if errors else "it hangs"


def be_interrupted(rank, _size, dtype, after_s):
    dist.all_reduce(torch.ones(3, dtype=dtype))
    core = group_of(None)
    if rank == 1:
        time.sleep(1.5)
        return "", ask_again(dtype)

    def handle(*_):
        # It may come while C++ waits, and runs when that calls Python: at its first line.
        if core.turn.running:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, after_s, 0.01)
    try:
        dist.all_reduce(torch.ones(3, dtype=dtype))
    except KeyboardInterrupt:
        return "interrupted", ask_again(dtype)
    return "not interrupted", ""


# The second is Gloo's where ranks share memory, too.
@pytest.mark.parametrize("adapter", ["native", "python"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
@pytest.mark.parametrize("after_s", [0.01, 0.6])
def test_ctrl_c_just_after_the_call_and_in_its_wait(dtype, adapter, after_s):
    environment = {**SHM, "AFFLUX_ADAPTER": adapter}
    first, second = values(run_ranks(be_interrupted, 2, dtype, after_s, environment=environment))
    assert first[0] == "interrupted"
    for error in first[1], second[1]:
        assert "(operation 2): given up: KeyboardInterrupt" in error


def interrupted_when_it_is_handed_over(rank, _size):
    dist.all_reduce(torch.ones(3))
    core = group_of(None)
    if rank == 1:
        time.sleep(1.5)
        return "", ask_again(torch.float32)

    wake, calls = core.wake, []

    def interrupted(given_up):
        calls.append(given_up)
        if len(calls) == 1:
            raise KeyboardInterrupt
        wake(given_up)

    setattr(core, "wake", interrupted)  # noqa: B010 - a method, for mypy
    try:
        dist.all_reduce(torch.ones(3), async_op=True)
    except KeyboardInterrupt:
        return "interrupted", ask_again(torch.float32)
    return "not interrupted", ""


def test_ctrl_c_when_an_asynchronous_call_is_handed_over():
    first, second = values(run_ranks(interrupted_when_it_is_handed_over, 2, environment=SHM))
    assert first[0] == "interrupted"
    for error in first[1], second[1]:
        assert "(operation 2): given up: KeyboardInterrupt" in error


class _Array(np.ndarray):
    """An array to which there are weak references."""


def drop_what_was_reduced(_rank, _size):
    array = np.ones(1_000_000, np.float32).view(_Array)
    kept = weakref.ref(array)
    tensor = torch.from_numpy(array)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    del tensor, array, work
    deadline = time.monotonic() + 10
    # The thread that has carried it out lets go a moment later.
    while kept() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return kept() is None


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_a_tensor_is_free_when_its_operation_is_over(adapter):
    environment = {**SHM, "AFFLUX_ADAPTER": adapter}
    assert values(run_ranks(drop_what_was_reduced, 2, environment=environment)) == [True, True]


def end_a_fork(_rank, _size):
    dist.all_reduce(torch.ones(3))
    child = os.fork()
    if child == 0:
        try:
            dist.destroy_process_group()
            gc.collect()
        finally:
            os._exit(0)
    deadline = time.monotonic() + 10
    ended, status = 0, 0
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hangs"
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return status, tensor.tolist()


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_a_forked_process_drops_its_copy_of_a_group(adapter):
    """It has none of the threads that Gloo's destructor waits for."""
    environment = {**SHM, "AFFLUX_ADAPTER": adapter}
    assert values(run_ranks(end_a_fork, 2, environment=environment)) == [(0, [2, 2, 2])] * 2
