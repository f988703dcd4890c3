"""Ranks at several aggregators below one: the bits of one aggregator, and errors that say where."""

import contextlib

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers.control.client import read_counters
from tests.support.host.aggregators import aggregator, closed_port
from tests.support.host.ranks import run_ranks, values


@pytest.fixture
def urls():
    """Of a parent and two leaves."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(aggregator()) for _ in range(3)]


def counters_at(url):
    where = AggregatorUrl.parse(url)
    return read_counters((where.host, where.port), 5.0)


def environment(parent, leaf, other, loss="0"):
    """Rank 1 is at the other leaf."""
    return {
        "AFFLUX_AGGREGATOR": f"{leaf}?parent={parent.removeprefix('udp://')}",
        "BAD_RANK": "1",
        "BAD": f"AFFLUX_AGGREGATOR={other}?parent={parent.removeprefix('udp://')}",
        "AFFLUX_TEST_LOSS": loss,
    }


def reduce_some(rank, size):
    generator = torch.Generator().manual_seed(rank)
    results: list[bytes | float] = []
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        for shape in ((5,), (100, 333)):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                tensor = (100 * torch.randn(shape, generator=generator)).to(dtype)
                dist.all_reduce(tensor, op=op)
                results.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    pair = dist.new_group([1, 2], backend="afflux")
    if rank > 0:
        tensor = torch.full((1000,), float(rank))
        dist.all_reduce(tensor, group=pair)
        results.append(tensor[0].item())
    dist.barrier()
    return results[:12], results[12:], afflux.statistics()["blocks_sent"]


@pytest.mark.parametrize("loss", ["0", "0.05"])
def test_ranks_at_two_leaves(urls, loss):
    alone = values(run_ranks(reduce_some, 3, environment={"AFFLUX_AGGREGATOR": "soft://"}))
    parent, leaf, other = urls
    together = values(run_ranks(reduce_some, 3, environment=environment(parent, leaf, other, loss)))
    for results, pair, _ in (*alone, *together):
        assert results == alone[0][0]
        assert pair in ([], [3.0])
    above, below, beside = (counters_at(url) for url in (parent, leaf, other))
    assert above["rounds"] == below["rounds"] == beside["rounds"] > 0
    # Of the group of three, and of the pair that has one rank at each leaf.
    assert above["joins"] >= 4
    sent = [blocks for _, _, blocks in together]
    assert below["blocks_accepted"] >= sent[0] + sent[2]
    assert beside["blocks_accepted"] >= sent[1]


def test_ranks_that_disagree_on_the_parent(urls):
    _, leaf, other = urls
    told = {**environment(*urls), "BAD": f"AFFLUX_AGGREGATOR={leaf}?parent={other[6:]}"}
    for outcome in run_ranks(reduce_some, 3, environment=told):
        assert "disagree on AFFLUX_AGGREGATOR" in outcome.message, outcome
    told["BAD"] = f"AFFLUX_AGGREGATOR={leaf}"
    for outcome in run_ranks(reduce_some, 3, environment=told):
        assert "disagree on AFFLUX_AGGREGATOR" in outcome.message, outcome


def test_a_parent_that_is_not_there(urls):
    _, leaf, other = urls
    nobody = f"udp://127.0.0.1:{closed_port()}"
    for outcome in run_ranks(reduce_some, 3, environment=environment(nobody, leaf, other)):
        assert outcome.failed
        assert nobody.removeprefix("udp://") in outcome.message
    # Nothing is left at the leaves.
    values(run_ranks(reduce_some, 3, environment=environment(*urls)))
