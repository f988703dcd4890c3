"""Groups that end at any moment, and are formed again, of as many ranks or of more."""

import gc
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from afflux.group.core import Group
from tests.support.host.digests import ENGINES, digest, fresh
from tests.support.host.ranks import run_ranks, values


def form(name, rank, size, store):
    dist.init_process_group(
        "afflux", store=dist.PrefixStore(name, store), rank=rank, world_size=size
    )


def aborted(rank, size):
    """Abort a group in which rank 0 waits; return seconds, errors, and a sum of a new group."""
    store, told = _get_default_store(), []
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if rank:
        # It never takes part.
        time.sleep(0.6)
        backend.abort()
        found = []
    else:

        def wait():
            try:
                dist.all_reduce(torch.ones(100_000))
            except RuntimeError as error:
                told.append((type(error).__name__, time.monotonic()))

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        start = time.monotonic()
        backend.abort()
        took_s = time.monotonic() - start
        waiting.join()
        ((kind, end),) = told
        found = [took_s, end - start, kind]
    dist.destroy_process_group()
    form("again", rank, size, store)
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    return found, tensor.tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_abort_ends_a_wait_in_another_thread_and_a_group_can_be_formed_again(engine):
    (found, first), (_, second) = values(run_ranks(aborted, 2, environment=ENGINES[engine]))
    assert first == second == [2.0] * 4
    took_s, waited_s, kind = found
    assert kind == "GroupClosed"
    # Some milliseconds where the machine is idle.
    assert took_s < 3
    assert waited_s < 3


def grown(rank, size):
    """Return digests of sums of a group of all but the last rank, and then of all."""
    store, found = _get_default_store(), []
    # Gloo fails at a rank that still connects to one that has left.
    dist.barrier()
    dist.destroy_process_group()
    if rank < size - 1:
        form("before", rank, size - 1, store)
        found.append(digest(rank))
        dist.destroy_process_group()
    form("after", rank, size, store)
    return [*found, digest(rank)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_group_that_grows_has_the_bits_of_a_fresh_one(engine):
    environment = ENGINES[engine]
    told = values(run_ranks(grown, 3, environment=environment))
    twos = set(values(run_ranks(fresh, 2, (0, 1), environment=environment)))
    threes = set(values(run_ranks(fresh, 3, (0, 1, 2), environment=environment)))
    assert len(twos) == len(threes) == 1
    assert told == [[*twos, *threes], [*twos, *threes], [*threes]]


def sum_alone(queued):
    with pytest.raises(RuntimeError):
        for _ in range(3):
            work = dist.all_reduce(torch.ones(100_000), async_op=queued)
            if work is not None:
                work.wait()


def left_alone(rank, _size, queued):
    """Return whether this process still has a group that has failed."""
    # Gloo fails at a rank that still connects to one that has left.
    dist.barrier()
    if rank == 0:
        sum_alone(queued)
    dist.destroy_process_group()
    until = time.monotonic() + 20
    # Gloo's threads have it for some milliseconds more.
    while any(type(each) is Group for each in gc.get_objects()):
        gc.collect()
        if time.monotonic() > until:
            return "kept"
        time.sleep(0.05)
    return "freed"


@pytest.mark.parametrize("queued", [False, True])
def test_a_group_that_has_failed_is_freed(queued):
    environment = ENGINES["shm"]
    assert values(run_ranks(left_alone, 2, queued, environment=environment)) == ["freed"] * 2
