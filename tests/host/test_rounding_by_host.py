"""rounding="host": a host rounds its ranks' sum before it sends it. Bits, and what must be alike.

Hosts are planted: ranks that believe in several, all on this one.
"""

import functools
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import rendezvous
from afflux.group.reducers import host_worker
from afflux_drivers.worker.again import Again
from afflux_sim.golden.reductions import all_reduce, all_reduce_by_host
from tests.support.golden_tensors import DTYPES, KINDS, bits_of, draw, narrow, reductions
from tests.support.host.aggregators import aggregator
from tests.support.host.ranks import caught, run_ranks, values

PAIRS = (0, 0, 1, 1)
# Uneven, not in order, one with one rank: averages are divided, too.
UNEVEN = (0, 1, 0, 2, 2, 0)
FLOATS = ("float32", "float16", "bfloat16")
TORCH = {"bfloat16": torch.bfloat16, "float16": torch.float16}
PIECE_BYTES = 16384
SEVERAL_PIECES = PIECE_BYTES // 4 + 360


def drawn(seed, kind, dtype, count, rank):
    """Return a rank's tensor of a kind; "cancelled" is zero at a host of two, "range" anything."""
    rng = np.random.default_rng([seed, 0 if kind == "cancelled" else rank])
    if kind not in ("cancelled", "range"):
        return draw(rng, kind, dtype, count)
    exponents = rng.integers(-150 if kind == "range" else -4, 128, count)
    x = np.ldexp(rng.standard_normal(count), exponents if kind == "range" else exponents % 8)
    if kind == "cancelled":
        # Other ranks of the host lack blocks of -0.
        x[:128] = 0.0
        x *= -1 if rank % 2 else 1
        x[:128] *= -1
    with np.errstate(over="ignore", under="ignore"):
        return narrow(x.astype(np.float32), dtype)


def cases(matrix: bool) -> list[tuple[int, str, str, str, int]]:
    """Return the seed, kind, dtype, reduction and length of each all-reduce."""
    kinds = [*(KINDS if matrix else ("dense", "sparse", "special", "huge")), "cancelled", "range"]
    found: list[tuple[int, str, str, str, int]] = []
    for dtype in DTYPES if matrix else FLOATS:
        for reduction in reductions(dtype) if matrix else ("sum", "avg"):
            for kind in KINDS if dtype == "int32" else kinds:
                counts = [3, 320, 1200] if matrix else [3, 520 if dtype == "float32" else 1000]
                if matrix and kind in ("sparse", "special", "cancelled", "range"):
                    counts.append(SEVERAL_PIECES)
                for count in counts:
                    found.append((len(found), kind, dtype, reduction, count))
    return found if matrix else [*found, (99, "cancelled", "float32", "avg", SEVERAL_PIECES)]


def made(rank, hosts, url, **options):
    host_worker.PIECE_BYTES = PIECE_BYTES
    rendezvous.host_identity = lambda: f"host {hosts[rank]}"
    own = afflux.Options(aggregator=url, interface=f"127.0.0.{hosts[rank] + 2}", **options)
    return dist.new_group(backend="afflux", pg_options=own, timeout=timedelta(seconds=60))


def reduced(rank, size, hosts, url, matrix):
    group = made(rank, hosts, url, rounding="host")
    brought = []

    def finish(again):
        brought.append(again.blocks)
        super(Again, again).finish()

    pytest.MonkeyPatch().setattr(Again, "finish", finish)
    results = []
    for seed, kind, dtype, reduction, count in cases(matrix):
        elements = drawn(seed, kind, dtype, count, rank)
        tensor = torch.from_numpy(elements.view(np.int16) if dtype == "bfloat16" else elements)
        tensor = tensor.view(TORCH.get(dtype, tensor.dtype))
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, reduction.upper()), group=group)
        results.append(tensor.view(torch.int16 if tensor.itemsize == 2 else torch.int32).numpy())
    found = afflux.statistics(group)
    dist.destroy_process_group(group)
    # Blocks that did not fit a slot come again.
    assert bool(sum(brought)) == (found.get("packets_sent", 0) > 0)
    return results, found["topology"], found["lanes"]


@functools.cache
def references(hosts, matrix):
    """Return the bits of each case; see that two roundings are not one."""
    found, differ = [], 0
    for seed, kind, dtype, reduction, count in cases(matrix):
        tensors = [drawn(seed, kind, dtype, count, rank) for rank in range(len(hosts))]
        of_hosts = [
            [tensors[rank] for rank in range(len(hosts)) if hosts[rank] == host]
            for host in sorted(set(hosts))
        ]
        found.append(bits_of(all_reduce_by_host(of_hosts, dtype, reduction), dtype))
        if kind == "dense":
            exact = bits_of(all_reduce(tensors, dtype, reduction), dtype)
            differ += int(np.count_nonzero(found[-1] != exact))
    assert differ > 100
    return found


def check(hosts, url, name, matrix=False, loss="0.02"):
    environment = {"AFFLUX_TEST_LOSS": loss}
    everyone = values(
        run_ranks(reduced, len(hosts), hosts, url, matrix, environment=environment, limit_s=900)
    )
    for n, (case, right) in enumerate(zip(cases(matrix), references(hosts, matrix), strict=True)):
        for rank, (results, topology, lanes) in enumerate(everyone):
            assert (topology, lanes) == (name, 16)
            wrong = np.flatnonzero(results[n].view(right.dtype) != right)
            assert not len(wrong), (rank, case, wrong[:5])


def test_the_bits_are_those_of_two_roundings():
    with aggregator() as url:
        check(PAIRS, url, "aggregator by host")


@pytest.mark.long
@pytest.mark.parametrize("hosts", [PAIRS, UNEVEN])
@pytest.mark.parametrize("way", ["streams://", "auto", "one", "two"])
def test_the_same_everywhere(hosts, way):
    streams = way in ("streams://", "auto")
    with aggregator() as first, aggregator() as second:
        url = {"one": first, "two": f"{first},{second}"}.get(way, way)
        check(hosts, url, f"{'streams' if streams else 'aggregator'} by host", matrix=True)


def once(rank, hosts, url, rounding, count):
    group = made(rank, hosts, url, rounding=rounding)
    tensor = torch.from_numpy(drawn(7, "mixed", "float32", count, rank))
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group)
    dist.destroy_process_group(group)
    return tensor.numpy().tobytes()


def odd(rank, size, hosts, url):
    return once(rank, hosts, url, "host", 3000)


def test_averages_are_divided_at_every_rank():
    tensors = [drawn(7, "mixed", "float32", 3000, rank) for rank in range(3)]
    right = all_reduce_by_host([[tensors[0], tensors[2]], [tensors[1]]], "float32", "avg")
    with aggregator() as url:
        assert values(run_ranks(odd, 3, (0, 1, 0), url)) == [right.tobytes()] * 3


def one_rank_a_host(rank, size, url):
    return [once(rank, (0, 1, 2), url, rounding, 3000) for rounding in ("exact", "host")]


def test_one_rank_a_host_is_exact():
    with aggregator() as url:
        for exact, by_host in values(run_ranks(one_rank_a_host, 3, url)):
            assert exact == by_host


def apart(rank, size, urls):
    said = []
    for hosts in (PAIRS, (0, 0, 0, 0)):
        for url in urls:
            chosen = "host" if rank in (1, 2) else "exact"
            said.append(caught(lambda: made(rank, hosts, url, rounding=chosen)))  # noqa: B023
    return said


def test_ranks_that_differ_are_named():
    with aggregator() as url:
        for said in values(run_ranks(apart, 4, ["auto", url])):
            for text, _, _ in said:
                assert (
                    "the ranks disagree on AFFLUX_ROUNDING: rank 0: exact; rank 1: host; "
                    "rank 2: host; rank 3: exact"
                ) in text


def other_call(rank, size, url):
    group = made(rank, PAIRS, url, rounding="host")
    op = dist.ReduceOp.AVG if rank >= 2 else dist.ReduceOp.SUM
    return caught(lambda: dist.all_reduce(torch.ones(1000), op=op, group=group))


def test_hosts_that_call_something_else_are_named():
    with aggregator() as url:
        texts = values(run_ranks(other_call, 4, url))
    assert "ranks [2, 3] called something else" in texts[0][0]
    assert "ranks [0, 1] called something else" in texts[2][0]
