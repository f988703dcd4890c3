"""Floats that Gloo carries: sums rounded once, and extremes, to the bit, at any number of ranks."""

import random
from fractions import Fraction

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.reducers import exact_sums
from afflux_sim.golden.rounding import FORMATS
from afflux_sim.golden.sums import add, bits_of_number, extreme, number_of_bits
from tests.support.host.ranks import run_ranks, values

RANKS = 8
EACH = 5
"""Elements of each kind, which no number of ranks but five divides."""

DTYPES = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
KINDS = ("ordinary", "whole range", "cancellation", "subnormal", "special", "one huge")
COUNT = EACH * len(KINDS)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def brought(dtype, rank, ranks):
    """Return the bits of what a rank brings: some of each kind."""
    form = FORMATS[name_of(dtype)]
    chance = random.Random(f"{dtype} {rank}")
    one = form.bias << form.fraction_bits
    subnormal = (1 << form.fraction_bits) - 1
    special = [form.sign, form.sign | form.infinity, form.infinity, form.nan, form.nan | form.sign]

    def sign():
        return chance.choice((0, form.sign))

    bits = [one + chance.randrange(-(4 << form.fraction_bits), 0) | sign() for _ in range(EACH)]
    bits += [chance.randrange(form.infinity) | sign() for _ in range(EACH)]
    # Each rank takes back what the one before has brought, but for one unit in some places.
    pairs = random.Random(rank // 2)
    bits += [
        pairs.randrange(one, form.infinity) + (rank > 1 and k == 0) | form.sign * (rank % 2)
        for k in range(EACH)
    ]
    bits += [chance.randrange(subnormal) | sign() for _ in range(EACH)]
    # Zeros of either sign alone, an infinity alone and against another one, NaN of any payload.
    for place in range(EACH):
        bits.append(special[place] if place == 0 or rank % 3 == place % 3 else form.sign)
    bits += [
        (form.infinity - 1 - k if rank == ranks - 1 else one >> 1 + rank % 2) for k in range(EACH)
    ]
    return bits


def expected(dtype, ranks, average):
    """Return the bits of the exact result, of each element."""
    form = FORMATS[name_of(dtype)]
    columns = zip(*(brought(dtype, rank, ranks) for rank in range(ranks)), strict=True)
    scale = (ranks - 1).bit_length() if average else 0
    found = []
    for column in columns:
        total = bits_of_number(add([number_of_bits(bits, form) for bits in column]), form, scale)
        value = number_of_bits(total, form)
        if average and isinstance(value, Fraction):
            sign = total & form.sign
            total = bits_of_number(abs(value) * 2**scale / ranks, form) | sign
        found.append(total)
    return found


def tensor_of(bits, dtype):
    wide = torch.tensor(bits, dtype=torch.int64)
    return wide.to(DTYPES[dtype]).view(dtype)


def bits_of(tensor):
    mask = (1 << 8 * tensor.element_size()) - 1
    return [each & mask for each in tensor.view(DTYPES[tensor.dtype]).tolist()]


def every_sum(rank, _size, small, chunk):
    """Return the bits of all sums that this rank gets, by what was asked for."""
    exact_sums._SMALL_BYTES = small
    exact_sums._LEAST_BYTES = exact_sums._MIDDLE_BYTES = exact_sums._MOST_BYTES = chunk
    found = {}
    for ranks in range(1, RANKS + 1):
        group = dist.new_group(range(ranks))
        if rank >= ranks:
            continue
        engine = afflux.statistics(group)["engine"]
        for dtype in DTYPES:
            mine = tensor_of(brought(dtype, rank, ranks), dtype)
            for op in ("SUM", "AVG"):
                asked = {"op": getattr(dist.ReduceOp, op), "group": group}
                whole, at_last = mine.clone(), mine.clone()
                # Neither tensor's memory is what it shows.
                strided = torch.stack([mine, mine], dim=1)[:, 0]
                parts = [mine.roll(k) for k in range(ranks)]
                part, of_one = torch.zeros_like(mine), torch.zeros_like(mine)
                dist.all_reduce(whole, **asked)
                dist.all_reduce(strided, **asked)
                # What waits goes by C++, if there is an adapter in it, and what does not by Python.
                mixed = mine.clone()
                work = dist.all_reduce(mixed, async_op=rank % 2 == 1, **asked)
                if work is not None:
                    work.wait()
                dist.reduce(at_last, ranks - 1, **asked)
                dist.reduce_scatter(part, parts, **asked)
                dist.reduce_scatter_tensor(of_one, torch.cat(parts), **asked)
                if rank < ranks - 1:
                    assert bits_of(at_last) == bits_of(mine)
                    at_last = whole
                results = whole, strided, mixed, at_last, part.roll(-rank), of_one.roll(-rank)
                found[ranks, dtype, op] = engine, [bits_of(each.contiguous()) for each in results]
    return found


@pytest.mark.parametrize(
    ("small", "chunk"),
    [(1 << 20, 1 << 20), pytest.param(0, 1 << 20, marks=pytest.mark.long), (0, 36)],
    ids=["gathered", "scattered", "chunks"],
)
def test_sums_through_gloo_are_rounded_once(small, chunk):
    environment = {"AFFLUX_AGGREGATOR": "gloo://"}
    right = {
        (ranks, dtype, op): expected(dtype, ranks, op == "AVG")
        for ranks in range(1, RANKS + 1)
        for dtype in DTYPES
        for op in ("SUM", "AVG")
    }
    for found in values(run_ranks(every_sum, RANKS, small, chunk, environment=environment)):
        for about, (engine, results) in found.items():
            assert engine == "gloo"
            for each in results:
                assert each == right[about], about


def extremes(rank, ranks):
    """Return the bits of the greatest and least numbers."""
    found = {}
    for dtype in DTYPES:
        for op in ("MAX", "MIN"):
            tensor = tensor_of(brought(dtype, rank, ranks), dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            found[dtype, op] = bits_of(tensor)
    return found


def test_extremes_through_gloo_are_those_of_numbers():
    environment = {"AFFLUX_AGGREGATOR": "gloo://"}
    for found in values(run_ranks(extremes, 3, environment=environment)):
        for (dtype, op), bits in found.items():
            form = FORMATS[name_of(dtype)]
            columns = zip(*(brought(dtype, rank, 3) for rank in range(3)), strict=True)
            assert bits == [extreme(each, form, greatest=op == "MAX") for each in columns]
