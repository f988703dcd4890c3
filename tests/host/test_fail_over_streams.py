"""An aggregator of streams dies in the midst of a step: that and the next have the same bits."""

import functools
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming.replacement import Replacement
from afflux.group.reducers.continued_streams_reducer import ContinuedStreamsReducer
from afflux.group.store.exchange import StepFailed
from afflux_drivers import _native
from tests.support.host import serving
from tests.support.host.aggregators import streams_aggregator
from tests.support.host.all_reduces import digest
from tests.support.host.freeing import destroyed_and_freed
from tests.support.host.marks import act_when
from tests.support.host.mortal_streams import MortalStreams
from tests.support.host.ranks import caught, run_ranks, values

SIZE = 3
COUNT = 420_003
"""Of float32: too much for one hop at any link, and a last block that is short."""

PIECES = 33
"""Of its results."""

ENVIRONMENT = {"AFFLUX_THREADS": "1", "AFFLUX_PEER_TIMEOUT": "30"}


def contribution(rank, number, dtype=torch.float32, count=COUNT):
    """Return elements of very different sizes, of which no sum of doubles is rounded; and zeros."""
    generator = torch.Generator().manual_seed(1000 * number + rank)
    if not dtype.is_floating_point:
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        return torch.randint(least, most, (count,), generator=generator, dtype=dtype)
    exponents = torch.randint(-10, 10, (count,), generator=generator)
    tensor = torch.randn(count, generator=generator) * torch.exp2(exponents)
    tensor[1000:90_000] = 0
    return tensor.to(dtype)


def steps(rank, size, dtype="float32", reduction="sum", idle_s=0.0, count=COUNT):
    """Sum, move, sum and sum; return digests of all, the topology, and how often it has changed."""
    found = []
    kind = getattr(torch, dtype)
    for number in range(3):
        tensor = contribution(rank, number, kind, count)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, reduction.upper()))
        found.append(digest(tensor))
        # What was a result may be given up to others only as it was.
        tensor.fill_(7)
        if number == 0:
            if rank == 0:
                time.sleep(idle_s)
            found += others(rank, size, kind, reduction)
    statistics = afflux.statistics()
    return found, statistics["topology"], statistics.get("fail_overs", 0)


def others(rank, size, kind, reduction):
    """Call what an aggregator has no part in."""
    found = []
    for count in (5, 70_000):
        moved = contribution(rank, 10 + count, kind, count)
        dist.broadcast(moved, 1)
        gathered = torch.zeros(size * count, dtype=kind)
        dist.all_gather_into_tensor(gathered, contribution(rank, 20, kind, count))
        shard = torch.zeros(count, dtype=kind)
        operation = getattr(dist.ReduceOp, reduction.upper())
        dist.reduce_scatter_tensor(shard, contribution(rank, 30, kind, size * count), operation)
        small = contribution(rank, 40, kind, count)
        dist.all_reduce(small, operation)
        found += [digest(each) for each in (moved, gathered, shard, small)]
    dist.barrier()
    return found


def judge(outcomes, topology="streams", *of_steps, fail_overs=1):
    right = alone(*of_steps)
    for rank, (found, carrier, count) in enumerate(values(outcomes)):
        assert found == right[rank]
        assert (carrier, count) == (topology, fail_overs)


@functools.cache
def alone(dtype="float32", reduction="sum", size=SIZE, count=COUNT):
    """Return what each rank finds if they share memory."""
    environment = {"AFFLUX_AGGREGATOR": "auto"}
    outcomes = run_ranks(steps, size, dtype, reduction, 0.0, count, environment=environment)
    return [found for found, *_ in values(outcomes)]


def test_the_bits_are_those_of_exact_sums():
    """What the other tests compare with."""
    whole = sum(contribution(rank, 0).double() for rank in range(SIZE)).float()
    assert all(found[0] == digest(whole) for found in alone())


@pytest.mark.parametrize(
    "results",
    [
        1,
        PIECES // 2,
        PIECES,
        *(pytest.param(number, marks=pytest.mark.long) for number in range(2, 3 * PIECES, 4)),
    ],
)
def test_after_every_piece_of_one_rank(results):
    """From a rank that has one piece to one that has ended the call, which others lack."""
    with streams_aggregator() as url, MortalStreams(url, 0, results) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        judge(run_ranks(steps, SIZE, environment=environment))
        assert mortal.died_at is not None


@pytest.mark.parametrize(
    "fraction", [0.5, *(pytest.param(each, marks=pytest.mark.long) for each in (0.0, 0.003, 0.999))]
)
def test_pieces_that_nobody_has_as_a_whole(fraction):
    """All ranks have so much of a next piece; it is summed anew, of what they contributed."""
    with (
        streams_aggregator() as url,
        MortalStreams(url, 1, 7, alike=True, fraction=fraction) as mortal,
    ):
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        judge(run_ranks(steps, SIZE, environment=environment))
        assert mortal.died_at is not None


def in_a_new_group(rank, _size, planted):
    """Sum once; if planted, over streams whose results overwrite contributions as they come."""
    with pytest.MonkeyPatch.context() as patch:
        if planted:
            patch.setattr(_native.StreamsGroup, "keep_results", lambda _self: None)
        group = dist.new_group()
    tensor = contribution(rank, 0)
    dist.all_reduce(tensor, group=group)
    return digest(tensor)


@pytest.mark.parametrize("planted", [False, True])
def test_a_part_of_a_piece_overwrites_no_contribution(planted):
    with streams_aggregator() as url, MortalStreams(url, 1, 7, alike=True) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        found = values(run_ranks(in_a_new_group, SIZE, planted, environment=environment))
    right = alone()[0][0]
    assert all((each == right) is not planted for each in found)


@pytest.mark.parametrize(
    ("dtype", "reduction", "size", "lanes"),
    [
        ("bfloat16", "avg", 4, 2),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in [
                ("float16", "sum", 3, 1),
                ("float32", "max", 4, 3),
                ("float64", "sum", 4, 1),
                ("float64", "avg", 3, 2),
                ("int32", "sum", 3, 1),
                ("int64", "product", 3, 2),
                ("uint8", "avg", 4, 1),
            ]
        ),
    ],
)
def test_types_reductions_and_lanes(dtype, reduction, size, lanes):
    count = COUNT * 4 // getattr(torch, dtype).itemsize
    with streams_aggregator() as url, MortalStreams(url, 2, 9) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url, "AFFLUX_THREADS": str(lanes)}
        outcomes = run_ranks(steps, size, dtype, reduction, 0.0, count, environment=environment)
        judge(outcomes, "streams", dtype, reduction, size, count)
        assert mortal.died_at is not None


def test_a_rank_that_has_ended_the_call_and_is_idle_gives_its_results():
    with streams_aggregator() as url, MortalStreams(url, 0, PIECES) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        start = time.monotonic()
        judge(run_ranks(steps, SIZE, "float32", "sum", 5.0, environment=environment))
        assert mortal.died_at is not None and mortal.died_at - start > 0


def over_gloo(rank, size, dtype, reduction, count):
    """Where no more streams can be had."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replacement, "_over_streams", no_streams)
        return steps(rank, size, dtype, reduction, 0.0, count)


def no_streams(_self, _secret, _reason, _limit_s):
    raise StepFailed("rank 1: a firewall")


@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [
        ("float32", "sum"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in [
                ("float64", "sum"),
                ("float64", "min"),
                ("bfloat16", "max"),
                ("int8", "avg"),
                ("int64", "product"),
            ]
        ),
    ],
)
def test_over_gloo(dtype, reduction):
    count = COUNT * 4 // getattr(torch, dtype).itemsize
    with streams_aggregator() as url, MortalStreams(url, 1, 12) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(over_gloo, SIZE, dtype, reduction, count, environment=environment)
        judge(outcomes, "gloo", dtype, reduction, SIZE, count)


def test_over_a_spare_and_then_over_streams():
    with (
        streams_aggregator() as url,
        streams_aggregator() as other,
        MortalStreams(url, 0, PIECES // 3) as mortal,
        MortalStreams(other, 1, 5) as spare,
    ):
        environment = {
            **ENVIRONMENT,
            "AFFLUX_AGGREGATOR": mortal.url,
            "AFFLUX_SPARE": spare.url,
            "AFFLUX_REQUIRE": "0",
        }
        judge(run_ranks(steps, SIZE, environment=environment), fail_overs=2)


def until_it_has_died(rank, size, mark):
    """Sum until all ranks have gone on without the aggregator; return how often it was wrong."""
    wrong = 0
    while True:
        tensor = torch.full((COUNT,), rank + 1.0)
        dist.all_reduce(tensor)
        wrong += int((tensor != size * (size + 1) / 2).sum())
        mark.touch()
        fail_overs = torch.tensor([afflux.statistics()["fail_overs"]])
        dist.all_reduce(fail_overs, dist.ReduceOp.MAX)
        if fail_overs.item():
            return wrong, afflux.statistics()["topology"]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_ended(tmp_path, end):
    mark = tmp_path / "summing"
    process, line = serving.start("--port=0", engine=("streams",))
    try:
        ending = act_when(mark, lambda: process.send_signal(end))
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": line.split()[-1]}
        outcomes = run_ranks(until_it_has_died, SIZE, mark, environment=environment)
        ending.join()
    finally:
        process.kill()
        serving.finish(process)
    assert values(outcomes) == [(0, "streams")] * SIZE


def last_step(rank, _size):
    """Sum once, and leave."""
    tensor = contribution(rank, 0)
    dist.all_reduce(tensor)
    return digest(tensor)


def kept_by_none(_self):
    return {"blocks": [], "contents": "", "all": 1}


def last_step_that_is_kept_by_none(rank, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContinuedStreamsReducer, "_kept", kept_by_none)
        found = last_step(rank, size)
        dist.destroy_process_group()
    return found


@pytest.mark.parametrize("planted", [False, True])
def test_in_the_last_step_the_first_that_has_left_leaves_its_results(planted):
    """The others lack as many as they can. If it keeps these to itself they say so."""
    step = last_step_that_is_kept_by_none if planted else last_step
    with streams_aggregator() as url, MortalStreams(url, 1, PIECES, lag=16) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(step, SIZE, environment=environment)
    if planted:
        assert all("the rest is lost" in outcomes[rank].message for rank in (0, 2))
    else:
        assert values(outcomes) == [alone()[0][0]] * SIZE


def one_dies(rank, _size):
    """Sum until the aggregator dies; rank 1 dies when the ranks have shown their states."""
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(Replacement, "__call__", lambda *_: os._exit(1))
        return caught(lambda: dist.all_reduce(contribution(rank, 0)))


def test_a_rank_that_dies_as_well_is_named_long_before_the_timeout():
    with streams_aggregator() as url, MortalStreams(url, 0, 5) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(
            one_dies, SIZE, environment=environment, timeout_s=300.0, tcp_store=True
        )
    for outcome in outcomes[::2]:
        text, kind, _ = outcome.value
        assert "rank(s) 1 ended" in text
        assert kind in ("RanksEnded", "GroupFailed")


def freed(rank, size):
    """Go on, destroy the group, and return whether nothing holds it then, nor its connections."""
    _, _, fail_overs = steps(rank, size)
    return fail_overs == 1 and destroyed_and_freed()


def test_a_group_that_has_gone_on_is_freed():
    with streams_aggregator() as url, MortalStreams(url, 0, PIECES // 2) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(freed, SIZE, environment=environment, tcp_store=True)
    assert values(outcomes) == [True] * SIZE


def failing(rank, _size):
    tensor = contribution(rank, 0)
    return caught(lambda: dist.all_reduce(tensor))


def test_with_require_it_is_an_error():
    with streams_aggregator() as url, MortalStreams(url, 0, 3) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url, "AFFLUX_REQUIRE": "1"}
        for text, kind, _ in values(run_ranks(failing, SIZE, environment=environment)):
            assert kind in ("AggregatorUnreachable", "GroupFailed")
            assert f"the aggregator at {mortal.url.removeprefix('streams://')}" in text


def test_a_spare_of_packets_is_refused_by_name():
    with streams_aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_SPARE": "udp://127.0.0.1:9"}
        for each in run_ranks(failing, SIZE, environment=environment):
            assert "AFFLUX_SPARE must be streams://host:port" in each.message
