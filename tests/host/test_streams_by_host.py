"""Hosts whose ranks share memory and send one stream: bits, failures, and what is left.

All but one of them plant hosts: ranks that believe in several, all on this one.
"""

import itertools
import logging
import logging.handlers
import os
import re
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import host_memory, rendezvous
from afflux.group.reducers import host_worker
from afflux.group_statistics import group_of
from tests.support.host.aggregators import aggregator
from tests.support.host.network import network
from tests.support.host.ranks import caught, run_ranks, values

# The host of each rank: uneven, not in order, one with one rank.
UNEVEN = (0, 1, 0, 2, 2, 0)
PAIRS = (0, 0, 1, 1)
PIECE_BYTES = 16384


def made(rank, hosts, url, timeout_s=60, **options):
    """Make a group that spans these hosts, with small pieces."""
    host_worker.PIECE_BYTES = PIECE_BYTES
    rendezvous.host_identity = lambda: f"host {hosts[rank]}"
    own = afflux.Options(aggregator=url, interface=f"127.0.0.{hosts[rank] + 2}", **options)
    limit = timedelta(seconds=timeout_s)
    return dist.new_group(backend="afflux", pg_options=own, timeout=limit)


def bits(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def awkward(shape, dtype, generator):
    tensor = torch.randn(shape, generator=generator) * 2.0 ** torch.randint(
        -30, 30, shape, generator=generator
    )
    chosen = torch.rand(shape, generator=generator)
    if dtype.is_floating_point:
        for n, value in enumerate((torch.nan, torch.inf, -torch.inf, -0.0)):
            tensor[chosen < 0.0005 * (4 - n)] = value
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), 64):
        if torch.rand((), generator=generator) < 0.3:
            flat[start : start + 64] = -0.0
    return tensor.to(dtype) if dtype.is_floating_point else tensor.nan_to_num(0).to(dtype)


# One piece, exact and direct ones among them; several; a last one that must not be exact.
SHAPES = [(5,), (64,), (4096,), (3 * 4096 + 40,), (70, 333)]


def reduce_all(rank, group):
    generator = torch.Generator().manual_seed(rank)
    results = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
        for shape in SHAPES:
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.MIN):
                tensor = awkward(shape, dtype, generator)
                # Strides of its own, too: what is reduced is a copy.
                tensor = tensor.t() if len(shape) == 2 else tensor
                dist.all_reduce(tensor, op=op, group=group)
                results.append(bits(tensor.contiguous()))
    work = [dist.all_reduce(torch.ones(20_000), group=group, async_op=True) for _ in range(3)]
    for each in work:
        each.wait()
    dist.barrier(group=group)
    return results


def flat(rank, size):
    return reduce_all(rank, None)


def by_host(rank, size, hosts, url):
    group = made(rank, hosts, url)
    found = reduce_all(rank, group), afflux.statistics(group)
    dist.destroy_process_group(group)
    mapped = Path("/proc/self/maps").read_text(encoding="ascii").count("memfd:afflux")
    return (*found, mapped)


@pytest.mark.parametrize("url", ["streams://", pytest.param("one", marks=pytest.mark.long), "two"])
def test_the_bits_are_those_of_a_flat_job(url):
    size = len(UNEVEN)
    alone = values(run_ranks(flat, size, environment={"AFFLUX_AGGREGATOR": "soft://"}))
    with aggregator() as first, aggregator() as second:
        url = {"one": first, "two": f"{first},{second}"}.get(url, url)
        environment = {"AFFLUX_AGGREGATOR": "auto", "AFFLUX_TEST_LOSS": "0.01"}
        together = values(run_ranks(by_host, size, UNEVEN, url, environment=environment))
    name, sent = "aggregator by host", "packets_sent"
    if url == "streams://":
        name, sent = "streams by host", "bytes_sent"
    default = together[0][2]
    for rank, (results, statistics, mapped) in enumerate(together):
        assert results == alone[0]
        assert statistics["topology"] == name
        # One host has one rank only, so the least rank of each has sent all.
        assert (statistics[sent] > 0) == (rank in (0, 1, 3))
        # The default group's memory is left.
        assert mapped == default > 0


def test_pieces_are_whole_blocks():
    each = host_worker.PIECE_BYTES // 4
    for count in (0, 1, each, each + 73, 3 * each + 1, 3 * each + 74, 2 * each):
        cuts = host_worker.pieces(count, 4)
        assert cuts[0][0] == 0
        assert cuts[-1][1] == count
        assert all(a[1] == b[0] and b[0] % 64 == 0 for a, b in itertools.pairwise(cuts))
        assert all(b - a <= each for a, b in cuts)


# The failure.


def total(group, count=10_000):
    tensor = torch.ones(count)
    dist.all_reduce(tensor, group=group)
    return tensor[-1].item()


def without_memory(rank, size):
    if rank == 3:

        def refused(*_):
            raise OSError("planted")

        setattr(host_memory, "SegmentClaim", refused)  # noqa: B010 - a class, for mypy
    said = logging.handlers.BufferingHandler(100)
    logging.getLogger("afflux").addHandler(said)
    group = made(rank, PAIRS, "streams://")
    return total(group), afflux.statistics(group), [each.getMessage() for each in said.buffer]


@pytest.mark.parametrize("hosts", [PAIRS])
def test_ranks_that_cannot_share_memory_send_each_their_own(hosts):
    for rank, (summed, statistics, said) in enumerate(values(run_ranks(without_memory, 4))):
        assert summed == 4
        # Those of the other host still have one stream.
        assert statistics["topology"] == "streams by host"
        assert (statistics["bytes_sent"] > 0) == (rank != 1)
        told = [text for text in said if "cannot share memory" in text]
        assert bool(told) == (rank == 0)
        if told:
            assert "ranks 2, 3 of a host" in told[0]
            assert "rank 3: planted" in told[0]


def killed(rank, size, victim):
    """End a rank; the others are in an operation, or about to call it."""
    group = made(rank, PAIRS, "streams://", peer_timeout_s=2.0)
    assert total(group) == size
    if rank == victim:
        os._exit(3)
    return caught(lambda: [total(group) for _ in range(3)])


@pytest.mark.parametrize("victim", [2, 3])
def test_a_rank_that_ends_is_named(victim):
    # Not the leader of the host with the store's server; rank 2 leads its host.
    outcomes = run_ranks(killed, 4, victim, timeout_s=30)
    assert outcomes[victim].kind == "died"
    for rank in {0, 1, 2, 3} - {victim}:
        message, _, seconds = outcomes[rank].value
        # By the memory or the streams, or by the group's links.
        assert re.search(rf"rank\(s\) {victim} ended or (closed|left) the group", message)
        assert f"rank {victim}: does not answer" in message
        assert seconds < 12


def killed_within(rank, size):
    """Rank 3 ends when its host's contribution is on its way already."""
    group = made(rank, PAIRS, "streams://", peer_timeout_s=5.0)
    assert total(group) == size
    if rank == 0:
        failure_heard_of(group)
    if rank == 3:
        threading.Timer(0.5, lambda: os._exit(3)).start()
    return caught(lambda: total(group))


def failure_heard_of(group):
    core = group_of(group)
    deadline = time.monotonic() + 20
    while core.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_rank_that_ends_while_its_leader_waits_for_the_network():
    outcomes = run_ranks(killed_within, 4, timeout_s=60)
    assert outcomes[3].kind == "died"
    for rank in (0, 1, 2):
        message, _, seconds = outcomes[rank].value
        # By the memory of the host, or by its connection, whichever is first.
        assert re.search(r"rank\(s\) 3 ended or (closed|left) the group", message)
        assert seconds < 12


def never_calls(rank, size, absent):
    group = made(rank, PAIRS, "streams://", timeout_s=2)
    total(group)
    if rank == absent:
        failure_heard_of(group)
    return caught(lambda: total(group))


@pytest.mark.parametrize("absent", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_rank_that_never_calls_is_named(absent):
    outcomes = values(run_ranks(never_calls, 4, absent))
    named = []
    for rank, (message, _, seconds) in enumerate(outcomes):
        assert "Timed out" in message
        assert f"rank {absent}: nothing since all_reduce sum float32 (10000,)" in message
        assert seconds < 15 or rank == absent
        # Of another host a rank may know no more than that; but it names no other one.
        waits_for = re.search(r"still waits for the contributions of rank\(s\) ([0-9, ]+)", message)
        if rank != absent and waits_for:
            assert str(absent) in waits_for[1].strip().split(", ")
            named.append(rank)
    assert named


def differs(rank, size, odd):
    group = made(rank, PAIRS, "streams://")
    total(group)
    dist.barrier()
    return caught(lambda: total(group, 20_000 if rank == odd else 10_000))


@pytest.mark.parametrize("odd", [1, 2])
def test_ranks_that_call_different_things(odd):
    # Rank 2 leads its host, whose ranks find out first.
    for message, _, seconds in values(run_ranks(differs, 4, odd)):
        assert "the ranks disagree" in message
        assert "(10000,)" in message
        assert "(20000,)" in message
        assert seconds < 10


def hosts_differ(rank, size):
    group = made(rank, PAIRS, "streams://")
    total(group)
    dist.barrier()
    return caught(lambda: total(group, 20_000 if rank > 1 else 10_000))


def test_hosts_that_call_different_things():
    for message, _, seconds in values(run_ranks(hosts_differ, 4)):
        assert "the ranks disagree" in message
        assert "ranks [2, 3] called something else" in message or "ranks [0, 1]" in message
        assert seconds < 10


def nested(rank, size):
    """Call in a handler, while its thread waits in the middle of an operation."""
    group = made(rank, PAIRS, "streams://")
    total(group)
    inner = []

    def handle(*_):
        inner.append(total(group, 30_000))

    signal.signal(signal.SIGALRM, handle)
    # Rank 2 comes late, so that all others are in the outer call.
    if rank == 2:
        time.sleep(1.5)
    else:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    outer = total(group, 50_000)
    if rank == 2:
        handle()
    last = total(group, 7)
    return outer, inner, last


def test_a_call_within_a_call():
    assert values(run_ranks(nested, 4)) == [(4.0, [4.0], 4.0)] * 4


def cut_off(rank, size):
    options = afflux.Options(aggregator="streams://", peer_timeout_s=2.0)
    group = dist.new_group(backend="afflux", pg_options=options, timeout=timedelta(seconds=60))
    assert total(group) == size
    # All of a host at once, as if its power were cut.
    if rank >= 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return caught(lambda: [total(group) for _ in range(3)])


def test_a_dead_host_is_noticed_long_before_the_timeout():
    with network(hosts=3, aggregators=0, gbit=None) as made_here:
        outcomes = run_ranks(cut_off, 6, hosts=made_here.hosts)
        for rank, (message, _, seconds) in enumerate(values(outcomes[:4])):
            # Of its two ranks one may be seen to end before the other.
            assert re.search(r"rank\(s\) (4|5|4, 5) ended or (left|closed) the group", message), (
                rank
            )
            assert seconds < 15


def copy_late(rank, size, url):
    group = made(rank, PAIRS, url)
    tensor = torch.full((30_000,), float(rank))
    copyto = host_worker.np.copyto
    if rank % 2:

        def late(target, source):
            # The result of the last piece; meanwhile the leader leaves the group.
            end = tensor.data_ptr() + tensor.nbytes
            if target.ctypes.data + target.nbytes == end:
                time.sleep(0.5)
            copyto(target, source)

        pytest.MonkeyPatch().setattr(host_worker, "np", SimpleNamespace(copyto=late))
    dist.all_reduce(tensor, group=group)
    dist.destroy_process_group(group)
    return tensor.unique().tolist()


def test_the_leader_may_leave_before_its_result_is_copied():
    with aggregator() as url:
        assert values(run_ranks(copy_late, 4, url)) == [[6.0]] * 4
