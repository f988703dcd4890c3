"""Gloo beneath a group: one device for all groups of a process, which end one by one."""

import contextlib
import os
import resource
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore

from afflux.group.call.description import Call
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.gloo import make_gloo
from afflux.group.settings.membership import Membership
from afflux_drivers.errors import AffluxError
from tests.support.host.ranks import run_ranks, values

TIMEOUT = timedelta(seconds=10)


def open_polls():
    """Count this process's poll descriptors, of which each Gloo device has one."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        # The one that reads the folder is closed by now, and others may be at any time.
        with contextlib.suppress(FileNotFoundError):
            found += descriptor.readlink().name == "anon_inode:[eventpoll]"
    return found


def many_groups(rank, size):
    os.environ["GLOO_SOCKET_IFNAME"] = socket.if_indextoname(1)
    store = dist.distributed_c10d._get_default_store()

    def make(name):
        return make_gloo(
            PrefixStore(name, store), Membership(store, rank, size, TIMEOUT, name, [1, 2])
        )

    def total(gloo):
        tensor = torch.tensor([float(rank)])
        gloo.allreduce([tensor]).wait()
        return tensor.item()

    groups = [make("first")]
    polls = [open_polls()]
    threads = [len(os.listdir("/proc/self/task"))]
    files = [len(os.listdir("/proc/self/fd"))]
    groups += [make(f"group {n}") for n in range(4)]
    polls.append(open_polls())
    threads.append(len(os.listdir("/proc/self/task")))
    files.append(len(os.listdir("/proc/self/fd")))
    sums = [total(gloo) for gloo in groups]
    assert groups[0].options.global_ranks_in_group == [1, 2]
    del groups[1:]
    # The device outlives its groups.
    sums += [total(groups[0]), total(make("last"))]
    return sums, polls, threads[1] - threads[0], files[1] - files[0]


def test_groups_share_a_device():
    for sums, polls, threads, files in values(run_ranks(many_groups, 2, tcp_store=True)):
        assert sums == [1.0] * 7
        assert polls[0] >= 1
        assert polls[1] == polls[0]
        # A group has 2 threads and a descriptor; torch's own would have 3 and 5, of which one and 4
        # are its device's. Other threads that the process begins or ends meanwhile are not Gloo's.
        assert threads < 4 * 3
        assert files < 4 * 3


def with_few_files(rank, size, left):
    """Let rank 0 open so many more files, and make a group; return the error, or none."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        files = len(os.listdir("/proc/self/fd"))
        # Descriptors are numbers below the limit, of which those in use may be any.
        fillers = [os.open(os.devnull, os.O_RDONLY) for _ in range(300 - files)]
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers) + 1 + left, hard))
    try:
        make_gloo(
            PrefixStore("few", store), Membership(store, rank, size, timedelta(seconds=2), "few")
        )
    except RuntimeError as error:
        return str(error)
    return ""


def test_a_rank_without_files_gets_an_error_and_lives():
    # Gloo's own thread ended the process there.
    first, second = run_ranks(with_few_files, 2, 0, tcp_store=True)
    assert not first.failed and not second.failed, (first, second)
    assert "rank 0 of 2 may open 0 more files" in first.value and "ulimit -n" in first.value
    assert second.value
    assert values(run_ranks(with_few_files, 2, 8, tcp_store=True)) == ["", ""]


class ClosedByTimeout:
    """A Work of Gloo's whose connections the timeout of another one has closed."""

    def wait(self, _limit: timedelta | None = None) -> None:
        raise RuntimeError("Application timeout caused pair closure")


def test_connections_that_a_timeout_has_closed_are_not_a_refusal():
    store = HashStore()
    gloo = make_gloo(store, Membership(store, 0, 1, TIMEOUT, "alone"))
    fallback = GlooFallback(gloo, store, 0, 1)
    call = Call("allreduce_coalesced", "float32", "allreduce_coalesced sum float32 (728,)", "")
    work: Any = ClosedByTimeout()
    # The group ends with it: not `CallRefused`, after which this rank alone would go on.
    with pytest.raises(RuntimeError, match="pair closure") as raised:
        fallback.finish(work, (), call, 1.0, lambda: None)
    assert not isinstance(raised.value, AffluxError)
