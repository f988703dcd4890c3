"""An aggregator dies in the midst of a step: the step, and the next ones, have the same bits."""

import contextlib
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

import afflux
from afflux.group.forming import launched_aggregator, plans
from afflux.group.forming.replacement import Replacement
from afflux.group.reducers.continued_job_reducer import ContinuedJobReducer
from afflux.group.store.bounded import BoundedStore
from afflux.group.store.epoch import Epoch
from afflux.group.store.exchange import StepFailed
from tests.support.host import serving
from tests.support.host.freeing import destroyed_and_freed
from tests.support.host.mixed_sums import bits, contribution, expected
from tests.support.host.mortal import Mortal, Starving
from tests.support.host.ranks import caught, run_ranks, values

SIZE = 3
RESULTS = 49
"""Of the tensor at each rank: 20 for its rows, the rest for blocks that cannot be summed there."""

ALL_RESULTS = 130
"""About so many are of all three steps; after a few more there is nothing left that could die."""

ENVIRONMENT = {"AFFLUX_SLOTS": "2", "AFFLUX_LANES": "2", "AFFLUX_PEER_TIMEOUT": "30"}


@contextlib.contextmanager
def aggregator() -> Iterator[str]:
    with serving.software_engine() as (url, _):
        yield url


def three_steps(rank, _size, dtype="float32", reduction="sum", idle_s=0.0):
    """Sum, broadcast, sum and sum; return the bits, and how long the first one took."""
    start = time.monotonic()
    found = []
    for number in range(3):
        tensor = contribution(rank, number, getattr(torch, dtype))
        dist.all_reduce(tensor, getattr(dist.ReduceOp, reduction.upper()))
        found.append(bits(tensor))
        # What was a result may be given up to others only as it was.
        tensor.fill_(7)
        if number == 0:
            took_s = time.monotonic() - start
            if rank == 0:
                time.sleep(idle_s)
            moved = torch.full((5,), float(rank))
            dist.broadcast(moved, 1)
            assert moved.tolist() == [1.0] * 5
    statistics = afflux.statistics()
    return found, took_s, statistics["topology"], statistics["fail_overs"]


def judge(outcomes, topology="streams", dtype="float32", reduction="sum"):
    right = [expected(number, dtype, reduction) for number in range(3)]
    for found, _, carrier, fail_overs in values(outcomes):
        assert found == right
        assert (carrier, fail_overs) == (topology, 1)


@pytest.mark.parametrize(
    "results",
    [
        RESULTS // 2,
        RESULTS - 1,
        *(
            pytest.param(number, marks=pytest.mark.long)
            for number in (1, *range(2, ALL_RESULTS, 3))
        ),
    ],
)
def test_after_every_result_of_one_rank(results):
    """From a rank that has heard one packet to one that has ended the call, which others lack."""
    with aggregator() as url, Mortal(url, 0, results) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        judge(run_ranks(three_steps, SIZE, environment=environment))
        assert mortal.died_at is not None


def test_an_aggregator_that_is_cut_off_in_the_midst_of_a_step():
    """One rank still hears it for a moment; then its host says nothing any more."""
    with aggregator() as url, Mortal(url, 2, RESULTS // 2, silent=True) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url, "AFFLUX_PEER_TIMEOUT": "1"}
        judge(run_ranks(three_steps, SIZE, environment=environment))


def lose_what_rank_0_began(rank, size):
    dist.all_reduce(torch.ones(10))
    # The others may still need their result sent again.
    time.sleep(0.5)
    if rank == 0:
        (began,) = launched_aggregator._launched.values()
        began.process.kill()
    return three_steps(rank, size)


@pytest.mark.parametrize(
    "url",
    [
        "soft://",
        *(
            pytest.param(url, marks=[pytest.mark.long, pytest.mark.timeout(600)])
            for url in ("rtl://", "board://")
        ),
    ],
)
def test_an_engine_that_the_ranks_began(url):
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_PEER_TIMEOUT": "2"}
    began = lose_what_rank_0_began
    judge(run_ranks(began, SIZE, environment=environment, timeout_s=200.0, limit_s=400.0))


def test_a_rank_that_has_ended_the_call_and_is_idle_gives_its_results():
    with aggregator() as url, Mortal(url, 0, RESULTS - 1) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(three_steps, SIZE, "float32", "sum", 5.0, environment=environment)
        judge(outcomes)
        # The others have not waited for its next call.
        assert all(took_s < 4 for _, took_s, *_ in values(outcomes)[1:])


def test_one_of_two_that_share_the_columns():
    with aggregator() as url, aggregator() as other, Mortal(other, 0, RESULTS // 4) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": f"{url},{mortal.url}"}
        judge(run_ranks(three_steps, SIZE, environment=environment))


def test_a_leaf_of_a_tree():
    with aggregator() as parent, aggregator() as leaf, Mortal(leaf, 1, RESULTS // 3) as mortal:
        above = parent.removeprefix("udp://")
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": f"{mortal.url}?parent={above}"}
        judge(run_ranks(three_steps, SIZE, environment=environment))


def over_gloo(rank, size, dtype, reduction):
    """Where there are no streams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replacement, "_over_streams", no_streams)
        return three_steps(rank, size, dtype, reduction)


def no_streams(_self, _secret, _reason, _limit_s):
    raise StepFailed("rank 1: a firewall")


@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [
        ("float32", "sum"),
        ("bfloat16", "max"),
        *(
            pytest.param(dtype, reduction, marks=pytest.mark.long)
            for dtype, reduction in [
                ("float32", "avg"),
                ("float16", "sum"),
                ("bfloat16", "avg"),
                ("float32", "min"),
                ("int32", "sum"),
            ]
        ),
    ],
)
def test_over_gloo(dtype, reduction):
    with aggregator() as url, Mortal(url, 1, 12) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(over_gloo, SIZE, dtype, reduction, environment=environment)
        judge(outcomes, "gloo", dtype, reduction)


def test_over_gloo_where_one_rank_has_no_address_for_streams():
    with aggregator() as url, Mortal(url, 1, 12) as mortal:
        bad = {"BAD_RANK": "1", "BAD": "AFFLUX_INTERFACE=nonesuch0"}
        environment = {**ENVIRONMENT, **bad, "AFFLUX_AGGREGATOR": mortal.url}
        judge(run_ranks(three_steps, SIZE, environment=environment), "gloo")


def with_too_few_threads(rank, _size):
    """Where rank 1 has connected its streams, and cannot begin what reads them."""
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(plans, "StreamsWorker", no_thread)
        return caught(lambda: three_steps(rank, SIZE))


def no_thread(*_arguments):
    raise RuntimeError("no thread left")


def test_a_rank_that_fails_when_all_have_agreed_ends_the_group_by_name():
    with aggregator() as url, Mortal(url, 1, 12) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(with_too_few_threads, SIZE, environment=environment)
    for rank, (text, kind, seconds) in enumerate(values(outcomes)):
        assert kind in ("AggregatorUnreachable", "GroupFailed", "RanksEnded"), text
        assert ("no thread left" if rank == 1 else "1") in text
        assert seconds < 10


def over_a_spare(rank, _size, options):
    """Sum until a second aggregator has died, too; return the bits, the ways, and their number."""
    group = dist.new_group(pg_options=afflux.Options(**options)) if options else None
    found, ways = [], []
    for number in range(4):
        tensor = contribution(rank, number)
        dist.all_reduce(tensor, group=group)
        found.append(bits(tensor))
        statistics = afflux.statistics(group)
        ways.append(statistics["topology"])
    return found, ways, statistics["fail_overs"]


@pytest.mark.parametrize("by_options", [False, True])
def test_over_a_spare_and_then_over_streams(by_options):
    with (
        aggregator() as url,
        aggregator() as other,
        Mortal(url, 0, RESULTS // 3) as mortal,
        Mortal(other, 1, 2 * RESULTS - 20) as spare,
    ):
        options = {"aggregator": mortal.url, "spare": spare.url}
        variables = {f"AFFLUX_{name.upper()}": url for name, url in options.items()}
        outcomes = run_ranks(
            over_a_spare,
            SIZE,
            options if by_options else {},
            environment=ENVIRONMENT if by_options else {**ENVIRONMENT, **variables},
        )
    for found, ways, fail_overs in values(outcomes):
        assert found == [expected(number) for number in range(4)]
        assert ways[0] == "aggregator" and ways[-1] == "streams"
        assert fail_overs == 2


def last_step(rank, _size, number):
    """Sum once, and leave."""
    tensor = contribution(rank, number)
    dist.all_reduce(tensor)
    return bits(tensor)


def test_in_the_last_step_the_first_that_has_left_leaves_its_results():
    with aggregator() as url, Mortal(url, 1, RESULTS - 1) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(last_step, SIZE, 0, environment=environment)
        assert values(outcomes) == [expected(0)] * SIZE


def last_step_then_idle(rank, _size):
    """Sum once; rank 0 leaves at once, rank 2 when it has long heard that."""
    tensor = contribution(rank, 0)
    dist.all_reduce(tensor)
    if rank == 2:
        time.sleep(6)
    return bits(tensor)


def test_in_the_last_step_one_that_has_heard_of_the_end_leaves_its_results():
    with aggregator() as url, Starving(url, 1, RESULTS - 1, 2.0) as mortal:
        environment = {
            **ENVIRONMENT,
            "AFFLUX_AGGREGATOR": mortal.url,
            "AFFLUX_CLOSE_TIMEOUT": "15",
        }
        outcomes = run_ranks(last_step_then_idle, SIZE, environment=environment, tcp_store=True)
        assert values(outcomes) == [expected(0)] * SIZE
        assert mortal.died_at is not None


def one_dies(rank, _size):
    """Sum until the aggregator dies; rank 1 dies when the ranks have shown their states."""
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(Replacement, "__call__", lambda *_: os._exit(1))
        return caught(lambda: dist.all_reduce(contribution(rank, 0)))


def test_a_rank_that_dies_as_well_is_named_long_before_the_timeout():
    with aggregator() as url, Mortal(url, 0, 5) as mortal:
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
    three_steps(rank, size)
    return destroyed_and_freed()


def test_a_group_that_has_gone_on_is_freed():
    with aggregator() as url, Mortal(url, 0, RESULTS // 2) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(freed, SIZE, environment=environment, tcp_store=True)
    assert values(outcomes) == [True] * SIZE


def test_results_larger_than_a_store_takes_at_once():
    """As of three aggregators with 512 slots of 16 lanes each."""
    store = BoundedStore(TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False))
    first, second = (Epoch(SimpleNamespace(notices=store), rank, 2, 1) for rank in range(2))  # type: ignore[arg-type]
    contents = {"blocks": list(range(24_576)), "contents": "x" * (24_576 * 256 * 4 // 3), "all": 1}
    assert second.given() is None
    first.bequeath({"over": 1}, lambda: contents)
    second.write_state({"over": 0})
    assert second.given() == contents
    assert second.states([0, 1]) == {0: {"over": 1}, 1: {"over": 0}}


def in_two_groups(rank, _size):
    """Sum in a group of all and in one of two, both at the same aggregator."""
    some = dist.new_group([0, 2])
    found = []
    for number in range(2):
        whole, half = contribution(rank, number), contribution(rank, number)
        works = [dist.all_reduce(whole, async_op=True)]
        if rank != 1:
            works.append(dist.all_reduce(half, group=some, async_op=True))
        for work in works:
            work.wait()
        found.append((bits(whole), bits(half)))
    return found


def test_several_groups_go_on():
    with aggregator() as url, Mortal(url, 0, RESULTS + 5) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        found = values(run_ranks(in_two_groups, SIZE, environment=environment))
    halves = [of_two(contribution(0, number), contribution(2, number)) for number in range(2)]
    for rank, steps in enumerate(found):
        for number, (whole, half) in enumerate(steps):
            assert whole == expected(number)
            assert half == (halves[number] if rank != 1 else bits(contribution(1, number)))


def of_two(one, other):
    # The sum of two floats is rounded correctly.
    return bits(one + other)


def failing(rank, _size):
    tensor = contribution(rank, 0)
    return caught(lambda: dist.all_reduce(tensor))


def test_with_require_it_is_an_error():
    with aggregator() as url, Mortal(url, 0, 3) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url, "AFFLUX_REQUIRE": "1"}
        for text, kind, _ in values(run_ranks(failing, SIZE, environment=environment)):
            assert kind in ("AggregatorUnreachable", "GroupFailed")
            assert "has ended" in text


def stopped(rank, _size):
    """Wait for a rank that does nothing, while the aggregator lives."""
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        time.sleep(4)
        return "", "", 0.0, 0
    found = caught(lambda: dist.all_reduce(torch.ones(1000)))
    return *found, afflux.statistics()["fail_overs"]


def test_a_slow_rank_is_not_a_dead_aggregator():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_PEER_TIMEOUT": "1"}
        outcomes = run_ranks(stopped, SIZE, environment=environment, timeout_s=2.0)
        for text, kind, _, fail_overs in values(outcomes)[::2]:
            assert kind in ("RanksMissing", "GroupFailed")
            assert "rank(s) 1" in text
            assert fail_overs == 0


def in_one_packet(rank, _size, planted):
    """Sum integers that come in one packet, of which a rank gives the others nothing if planted."""
    with pytest.MonkeyPatch.context() as patch:
        if planted:
            patch.setattr(ContinuedJobReducer, "_kept", kept_by_none)
        tensor = torch.full((10,), rank + 1, dtype=torch.int32)
        dist.all_reduce(tensor)
        found = tensor.tolist()
        time.sleep(0.1)
        dist.barrier()
    return found


def in_gloo(rank, _size):
    """Gather by Gloo, before which the ranks agree; one rank is in Gloo when the others are not."""
    found = [torch.zeros(3) for _ in range(SIZE)]
    dist.all_gather(found, torch.full((3,), float(rank)))
    tensor = contribution(rank, 0)
    dist.all_reduce(tensor)
    return [each[0].item() for each in found], bits(tensor)


def test_a_rank_that_waits_in_gloo_lets_the_others_come_there():
    with aggregator() as url, Mortal(url, 0, 1) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(in_gloo, SIZE, environment=environment)
    assert values(outcomes) == [([0.0, 1.0, 2.0], expected(0))] * SIZE


def kept_by_none(_self):
    return {"blocks": [], "contents": "", "all": 1}


@pytest.mark.parametrize("planted", [False, True])
def test_exactly_one_rank_has_the_result(planted):
    """If it keeps that to itself the others say that they lack it."""
    with aggregator() as url, Mortal(url, 0, 1) as mortal:
        environment = {**ENVIRONMENT, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(in_one_packet, SIZE, planted, environment=environment)
    if planted:
        assert all("the rest is lost" in each.message for each in outcomes[1:])
    else:
        assert values(outcomes) == [[6] * 10] * SIZE
