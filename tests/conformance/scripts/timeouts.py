"""The errors of ranks when another is late, missing, or calls something else."""

import contextlib
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.conformance.script import script

_WORDS = ("timed out", "timeout", "closed")
"""One of these is in the texts that torch's tests and users' scripts look for."""

_SEEN = "seen"
"""Key in the store: a rank has been told what it waited for."""


def _ends_in_time(action: Any, limit_s: float) -> str:
    """Say that a call failed within its time, in words that scripts look for."""
    started = time.monotonic()
    try:
        action()
    except RuntimeError as error:
        text, seconds = str(error).lower(), time.monotonic() - started
        assert seconds < limit_s, f"after {seconds:.1f} s"
        assert any(word in text for word in _WORDS), f"none of {_WORDS} in: {error}"
        return "RuntimeError"
    raise AssertionError("nothing was raised")


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _seen(answer: str) -> str:
    """Return what a rank was told, and let the one go that it has waited for."""
    _store().set(_SEEN, "")
    return answer


def _stay() -> None:
    """Stay until another rank has seen its timeout: leaving earlier would be another error."""
    with contextlib.suppress(RuntimeError):
        _store().wait([_SEEN], timedelta(seconds=15))


@script(timeout_s=2.0)
def all_reduce_times_out(rank: int, size: int, backend: str) -> Any:
    """Sum without the last rank."""
    if rank == size - 1:
        _stay()
        return None
    return _seen(_ends_in_time(lambda: dist.all_reduce(torch.ones(4)), 10.0))


@script(timeout_s=2.0)
def barrier_times_out(rank: int, size: int, backend: str) -> Any:
    """Meet without the last rank."""
    if rank == size - 1:
        _stay()
        return None
    return _seen(_ends_in_time(dist.barrier, 10.0))


@script(timeout_s=2.0)
def broadcast_times_out(rank: int, size: int, backend: str) -> Any:
    """Wait for a broadcast whose source does not come."""
    if rank == 0:
        _stay()
        return None
    return _seen(_ends_in_time(lambda: dist.broadcast(torch.ones(4), 0), 10.0))


@script(timeout_s=2.0)
def recv_times_out(rank: int, size: int, backend: str) -> Any:
    """Receive what nobody sends."""
    if rank == 1:
        return _seen(_ends_in_time(lambda: dist.recv(torch.empty(1), 0), 10.0))
    _stay()
    return None


@script()
def wait_with_timeout(rank: int, size: int, backend: str) -> Any:
    """Wait for a Work with a timeout of its own, shorter than the group's."""
    if rank == size - 1:
        _stay()
        return None
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work is not None
    return _seen(_ends_in_time(lambda: work.wait(timedelta(seconds=1)), 10.0))


@script()
def set_timeout_has_effect(rank: int, size: int, backend: str) -> Any:
    """Shorten a group's timeout: the next operation ends by it."""
    from torch.distributed.distributed_c10d import _set_pg_timeout

    dist.all_reduce(torch.ones(1))
    _set_pg_timeout(timedelta(seconds=2), dist.distributed_c10d._get_default_group())
    if rank == size - 1:
        _stay()
        return None
    return _seen(_ends_in_time(lambda: dist.all_reduce(torch.ones(4)), 10.0))


@script()
def monitored_barrier_names_the_missing(rank: int, size: int, backend: str) -> Any:
    """Be told by rank 0 who did not come."""
    if rank == size - 1:
        _stay()
        return None
    if rank:
        with contextlib.suppress(RuntimeError):
            dist.monitored_barrier(timeout=timedelta(seconds=2))
        return None
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=2))
    except RuntimeError as error:
        assert f"rank {size - 1}" in str(error).lower(), error
        return _seen("named")
    raise AssertionError("nothing was raised")


@script()
def monitored_barrier_without_time(rank: int, size: int, backend: str) -> Any:
    """Give the others no time at all, with the group's own method, at rank 0 alone."""
    group = dist.new_group()
    if rank:
        return None
    text = ""
    try:
        group.monitored_barrier(timedelta(0))
    except RuntimeError as error:
        text = str(error)
    return "Rank 0 timed out in monitoredBarrier" in text


@script(timeout_s=3.0, alone=True, beyond_gloo=True, limit_s=15)
def mismatched_sizes(rank: int, size: int, backend: str) -> Any:
    """Sum tensors of different sizes: no rank hangs, and none dies, as with Gloo."""
    started = time.monotonic()
    with contextlib.suppress(RuntimeError):
        dist.all_reduce(torch.ones(1000 + 1000 * rank))
    assert time.monotonic() - started < 10.0
    return "ended"


@script(timeout_s=15.0)
def late_rank(rank: int, size: int, backend: str) -> Any:
    """Sum with a rank that comes three seconds late, as after loading data."""
    if rank == size - 1:
        time.sleep(3.0)
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    return tensor


@script(bound=0.0)
def refused_at_one_rank(rank: int, size: int, backend: str) -> Any:
    """Make a local mistake at one rank, see the error there, and go on everywhere."""
    if rank == 0:
        with contextlib.suppress(RuntimeError, ValueError, TypeError):
            dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * size + 1))
            raise AssertionError("it was taken")
        with contextlib.suppress(RuntimeError, ValueError, TypeError):
            dist.all_gather([torch.empty(2)] * (size + 3), torch.ones(2))
            raise AssertionError("it was taken")
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    return tensor
