"""An aggregator dies under hosts whose ranks send one stream: the steps have the same bits.

Pieces are small here, so a tensor has some, and the last one is without marks for its blocks.
"""

import contextlib
import os
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import rendezvous
from afflux.group.reducers import host_worker
from afflux.group.reducers.continued_job_reducer import ContinuedHostReducer
from afflux.group.reducers.host_worker import HostWorker
from tests.support.host import serving
from tests.support.host.mixed_sums import bits, contribution, expected
from tests.support.host.mortal import Mortal, Starving
from tests.support.host.ranks import caught, run_ranks, values

BLOCKS = 18
"""Of a piece: the tensors have 40, so the third one is small. With 20 there are two large ones."""

SHARED = (0, 0, 1, 1, 1)
ONE_ALONE = (0, 1, 1)
STEP = 228
"""So many results of the first step a host of SHARED gets, one of ONE_ALONE about 156."""


def by_host(rank, hosts, url, blocks=BLOCKS, **options):
    """Make a group whose ranks are on these hosts; its leaders are the least ranks."""
    host_worker.PIECE_BYTES = blocks * 256
    rendezvous.host_identity = lambda: f"host {hosts[rank]}"
    own = afflux.Options(aggregator=url, interface=f"127.0.0.{hosts[rank] + 2}", **options)
    return dist.new_group(backend="afflux", pg_options=own)


def three_steps(rank, size, hosts, url, dtype="float32", reduction="sum", slow=-1, blocks=BLOCKS):
    group = by_host(rank, hosts, url, blocks)
    assert afflux.statistics(group)["topology"] == "aggregator by host"
    found = []
    for number in range(3):
        tensor = contribution(rank, number, getattr(torch, dtype))
        if rank == slow:
            time.sleep(0.3)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, reduction.upper()), group=group)
        found.append(bits(tensor))
        tensor.fill_(7)
    statistics = afflux.statistics(group)
    dist.destroy_process_group(group)
    return found, statistics["topology"], statistics["fail_overs"]


def judge(outcomes, dtype="float32", reduction="sum"):
    right = [expected(number, dtype, reduction, len(outcomes)) for number in range(3)]
    for found, topology, fail_overs in values(outcomes):
        assert found == right
        assert (topology, fail_overs) == ("streams", 1)


def ranks(body, hosts, url, *arguments):
    environment = {
        "AFFLUX_AGGREGATOR": "gloo://",
        "AFFLUX_SLOTS": "2",
        "AFFLUX_LANES": "2",
        "AFFLUX_PEER_TIMEOUT": "30",
    }
    return run_ranks(body, len(hosts), hosts, url, *arguments, environment=environment)


@contextlib.contextmanager
def aggregator():
    with serving.software_engine() as (url, _):
        yield url


@pytest.mark.parametrize(
    ("hosts", "blocks", "results"),
    [
        (SHARED, BLOCKS, STEP // 3),
        (SHARED, BLOCKS, STEP - 1),
        (SHARED, BLOCKS, STEP + 2),
        (SHARED, 20, 223),
        (ONE_ALONE, BLOCKS, 80),
        (ONE_ALONE, BLOCKS, 155),
        *(pytest.param(SHARED, BLOCKS, number, marks=pytest.mark.long) for number in (1, STEP)),
        *(
            pytest.param(hosts, blocks, number, marks=pytest.mark.long)
            for hosts, most in ((SHARED, 670), (ONE_ALONE, 450))
            for blocks in (BLOCKS, 20)
            for number in range(3, most, 13)
        ),
    ],
)
def test_after_every_result_of_one_host(hosts, blocks, results):
    """From a leader that has heard one packet to one whose host has ended the call."""
    with aggregator() as url, Mortal(url, results % 2, results) as mortal:
        judge(ranks(three_steps, hosts, mortal.url, "float32", "sum", -1, blocks))
        assert mortal.died_at is not None


@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [
        ("bfloat16", "avg"),
        ("int32", "sum"),
        *(
            pytest.param(dtype, reduction, marks=pytest.mark.long)
            for dtype, reduction in [("float32", "max"), ("float16", "sum"), ("float32", "avg")]
        ),
    ],
)
def test_other_types_and_reductions(dtype, reduction):
    with aggregator() as url, Mortal(url, 1, 14) as mortal:
        judge(ranks(three_steps, SHARED, mortal.url, dtype, reduction), dtype, reduction)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_while_a_rank_of_a_host_is_late(slow):
    with aggregator() as url, Mortal(url, 0, STEP + 2) as mortal:
        judge(ranks(three_steps, SHARED, mortal.url, "float32", "sum", slow))


def last_step(rank, _size, hosts, url):
    group = by_host(rank, hosts, url)
    tensor = contribution(rank, 0)
    dist.all_reduce(tensor, group=group)
    dist.destroy_process_group(group)
    return bits(tensor)


def test_in_the_last_step_a_host_that_has_left_leaves_its_results():
    with aggregator() as url, Starving(url, 1, STEP - 1, 1.0) as mortal:
        outcomes = ranks(last_step, SHARED, mortal.url)
        assert values(outcomes) == [expected(0, size=len(SHARED))] * len(SHARED)
        assert mortal.died_at is not None


def over_a_spare(rank, _size, hosts, url, spare):
    group = by_host(rank, hosts, url, spare=spare)
    found, ways = [], []
    for number in range(4):
        tensor = contribution(rank, number)
        dist.all_reduce(tensor, group=group)
        found.append(bits(tensor))
        ways.append(afflux.statistics(group)["topology"])
    return found, ways, afflux.statistics(group)["fail_overs"]


def test_over_a_spare_by_host_and_then_over_streams():
    with (
        aggregator() as url,
        aggregator() as other,
        Mortal(url, 0, STEP // 3) as mortal,
        Mortal(other, 1, 3 * STEP) as spare,
    ):
        for found, ways, fail_overs in values(ranks(over_a_spare, SHARED, mortal.url, spare.url)):
            assert found == [expected(number, size=len(SHARED)) for number in range(4)]
            assert (ways[0], ways[-1], fail_overs) == ("aggregator by host", "streams", 2)


def rounded(rank, _size, hosts, url):
    group = by_host(rank, hosts, url, rounding="host")
    return caught(lambda: [dist.all_reduce(contribution(rank, 0), group=group) for _ in range(3)])


def test_hosts_that_round_end_by_name():
    """Their leaders' contributions are not there any more."""
    with aggregator() as url, Mortal(url, 0, 10) as mortal:
        for text, kind, _ in values(ranks(rounded, SHARED, mortal.url)):
            assert kind in ("AggregatorUnreachable", "GroupFailed")
            assert "has ended" in text


def kill_between_pieces(rank, size, hosts, url, killed, piece, bug=""):
    """Kill the aggregator while a rank is slow to take out a piece, for which its leader waits."""
    take_out = host_worker._Buffers.take_out
    left = [True]

    def slowly(self, n, part):
        # Of the second step, as the memory is as it was made before.
        if n == piece and left and sums[0] == 1:
            left.clear()
            time.sleep(0.5)
            os.kill(killed, signal.SIGKILL)
            time.sleep(2.0)
        take_out(self, n, part)

    sums = [-1]
    contributed = contribution

    def counted(*arguments):
        sums[0] += 1
        return contributed(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "contribution", counted)
        if rank == 1:
            patch.setattr(host_worker._Buffers, "take_out", slowly)
        if bug:
            patch.setattr(*BUGS[bug])
        return three_steps(rank, size, hosts, url)


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_between_two_pieces(piece):
    """The leader is a piece ahead, or at the end of the call; of piece 2, in the next one."""
    with serving.software_engine() as (url, process):
        judge(ranks(kill_between_pieces, SHARED, url, process, piece))


def writes_too_soon(self):
    """Leave what has come of a piece that has not begun: nothing."""
    self._journal.begun = self._journal.running
    fence(self)


def too_much(self, over, running, begun, done):
    """Take out a piece that the leader has not got, as if it had."""
    take_out(self, over, running, begun, done + (running and done < len(self._journal.parts)))


def unbegun(self, over, running, _begun, done):
    """Take out what lies in the place of a piece that has not begun."""
    take_out(self, over, running, running, done)


fence, take_out = HostWorker.fence, HostWorker.take_out

BUGS = {
    "writes too soon": (HostWorker, "fence", writes_too_soon),
    "takes out too much": (HostWorker, "take_out", too_much),
    "takes out what has not begun": (HostWorker, "take_out", unbegun),
}


def is_wrong(outcomes):
    right = [expected(number, size=len(SHARED)) for number in range(3)]
    return any(each.failed or each.value[0] != right for each in outcomes)


@pytest.mark.parametrize("bug", BUGS)
def test_bugs_between_pieces_are_seen(bug):
    with serving.software_engine() as (url, process):
        assert is_wrong(ranks(kill_between_pieces, SHARED, url, process, 0, bug))


def at_once(_self, _deadline, _interrupted):
    """Do not wait for what the leader leaves."""


def without_waiting(rank, size, hosts, url, planted):
    with pytest.MonkeyPatch.context() as patch:
        if planted:
            patch.setattr(ContinuedHostReducer, "_settle", at_once)
        return three_steps(rank, size, hosts, url, "int32", blocks=20)


@pytest.mark.parametrize("planted", [False, True])
def test_a_host_that_lacks_the_end_of_a_large_piece(planted):
    """The other host gives it; ranks that do not wait for what their leader has lack more."""
    with aggregator() as url, Mortal(url, 1, 43) as mortal:
        outcomes = ranks(without_waiting, SHARED, mortal.url, planted)
    if planted:
        assert any("the rest is lost" in each.message for each in outcomes)
    else:
        judge(outcomes, "int32")
