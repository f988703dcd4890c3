"""All-reduces of sparse tensors, and of the largest elements only."""

from typing import Any

import torch
import torch.distributed as dist

from afflux.compressors.gtopk import take_global_top_k
from afflux.compressors.selection import Bounds
from afflux_drivers.selection import largest
from benchmarks.report.drawn_rows import zipf_rows
from benchmarks.report.sides import Side

__all__ = ["coo_side", "top_k_side", "zipf_side"]

_TOLERANCE = 1e-5
"""Of the largest sum: offers are rounded to some 22 bits of the largest one."""

_GROWS = 16
"""A dense sum in place grows with each call: so many stay finite."""


def _generator(rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(2000 + rank)


def _drawn(count: int, density: float, rank: int) -> torch.Tensor:
    """Return a rank's sparse tensor: elements at random places, whole numbers.

    Whole, so that sums are the same in whichever order they are made.
    """
    generator = _generator(rank)
    # Random gaps, whose mean is the density's inverse.
    gaps = torch.randint(1, round(2 / density), (round(count * density),), generator=generator)
    places = gaps.cumsum(0) - 1
    places = places[places < count]
    values = torch.randint(-100, 101, (len(places),), generator=generator).to(torch.float32)
    return _coo(places, values, count)


def _coo(places: torch.Tensor, values: torch.Tensor, count: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        places.unsqueeze(0),
        values,
        (count, *values.shape[1:]),
        is_coalesced=True,
        check_invariants=False,
    )


def coo_side(group: Any, size: int, density: float, rank: int, ranks: int) -> Side:
    """Return the sum of a sparse tensor.

    Args:
        group: Of the contender.
        size: Bytes of the tensor if it were dense, of float32.
        density: Share of its elements that a rank has.
        rank: Own rank.
        ranks: How many there are.
    """
    count = size // 4
    return _coo_side(group, [_drawn(count, density, each) for each in range(ranks)], rank)


def zipf_side(group: Any, size: int, density: float, rank: int, ranks: int, width: int) -> Side:
    """Return the sum of sparse tensors whose rows follow Zipf's law, as an embedding's gradients.

    Args:
        group: Of the contender.
        size: Bytes of the tensor if it were dense, of float32.
        density: Share of its rows that a rank has.
        rank: Own rank.
        ranks: How many there are.
        width: Elements of a row.
    """
    rows = size // (4 * width)
    tensors = []
    for each in range(ranks):
        places = torch.from_numpy(zipf_rows(rows, density, each))
        shape = (len(places), width) if width > 1 else (len(places),)
        values = torch.randint(-100, 101, shape, generator=_generator(each))
        tensors.append(_coo(places, values.to(torch.float32), rows))
    return _coo_side(group, tensors, rank)


def _coo_side(group: Any, of_ranks: list[torch.Tensor], rank: int) -> Side:
    """Return the sum of these tensors, one of each rank."""
    own = of_ranks[rank]
    places, values = own.indices()[0], own.values()

    def call() -> torch.Tensor:
        # In place: the sum has more elements than the rank's own tensor.
        tensor = _coo(places, values.clone(), len(own))
        dist.all_reduce(tensor, group=group)
        return tensor

    def wrong() -> int:
        expected = torch.zeros(own.shape)
        for each in of_ranks:
            expected[each.indices()[0]] += each.values()
        got = call().coalesce()
        at = got.indices()[0]
        found = int((expected[at] != got.values()).sum())
        expected[at] = 0.0
        return found + int(expected.count_nonzero())

    return Side(call, wrong)


def top_k_side(group: Any, dense: bool, size: int, density: float, rank: int, ranks: int) -> Side:
    """Return gTop-k of a tensor, or the sum of all of it.

    Args:
        group: Of the contender.
        dense: Whether it sums everything.
        size: Bytes of the tensor, of float32.
        density: Share of its elements that is taken.
        rank: Own rank.
        ranks: How many there are.
    """
    elements = size // 4
    count = max(1, round(elements * density))
    tensor = torch.randn(elements, generator=_generator(rank))

    def restore() -> None:
        torch.randn(elements, generator=_generator(rank), out=tensor)

    if dense:
        # It is the measure, and has cases of its own where its elements are checked.
        return Side(lambda: dist.all_reduce(tensor, group=group), lambda: 0, restore, batch=_GROWS)

    def wrong() -> int:
        restore()
        taken = take_global_top_k(tensor, count, group)
        own = torch.zeros(1 + 2 * count, dtype=torch.int64)
        own[0] = len(taken.places)
        own[1 : 1 + len(taken.places)] = taken.places
        own[1 + count : 1 + count + len(taken.sums)] = taken.sums.view(torch.int32)
        # The first rank, which knows all tensors, checks its own; the others have the same.
        first = own.clone()
        dist.broadcast(first, 0)
        if rank != 0:
            return int((own != first).sum())
        sums: dict[int, float] = {}
        for each in range(ranks):
            other = torch.randn(elements, generator=_generator(each))
            places = torch.from_numpy(largest(other.numpy(), count))
            for place, value in zip(places.tolist(), other[places].tolist(), strict=True):
                sums[place] = sums.get(place, 0.0) + value
        bounds = sorted(map(abs, sums.values()), reverse=True)
        near = _TOLERANCE * bounds[0]
        least = bounds[count - 1] - near
        right = sum(
            abs(sums.get(place, 0.0) - value) <= near and abs(value) >= least - near
            for place, value in zip(taken.places.tolist(), taken.sums.tolist(), strict=True)
        )
        return count - right

    # A scheme has them.
    bounds = Bounds()
    return Side(lambda: take_global_top_k(tensor, count, group, bounds=bounds), wrong)
