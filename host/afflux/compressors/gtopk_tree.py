"""gTop-k as the paper merges it: in a tree, which drops what is not among the largest at each step.

After S. Shi et al., ICDCS 2019, algorithms 2 and 3. Pairs of ranks merge their lists: one sends its
own, the other adds it to its own, and keeps the k largest. After log2 of the ranks' number of such
steps one rank has the result, and it goes down the tree again. It needs no aggregator, only
messages from rank to rank, and a list is never longer than k. (`gtopk` sums all offers instead, so
it may find other elements: those whose offers are each among the lesser ones of their branch.)

**Any number of ranks:** one that has no partner in a step goes on to the next.

**Conservation** is as strict as `gtopk`'s. A rank knows what it has dropped only of its own merges,
and the authors' published code takes an offer for given if its place is among the result's, though
a merge may have dropped it and the place be there for another branch's offers. Here the way down
tells each sender which elements of its list have come through, so a rank takes out of its tensor
those of its offers that are in the result, and no others.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from afflux.compressors.gtopk import Taken, agreed_quantum
from afflux.compressors.selection import Bounds, largest_of_sums
from afflux_drivers import selection

__all__ = ["take_by_tree"]

_PLACE_BITS = 31


class _List(NamedTuple):
    """Elements of a sum: places, ascending, and quanta; both int32."""

    places: np.ndarray
    quanta: np.ndarray


def take_by_tree(
    tensor: torch.Tensor,
    count: int,
    group: dist.ProcessGroup | None = None,
    *,
    bounds: Bounds | None = None,
) -> Taken:
    """Take elements of the ranks' sum out of the ranks' tensors: what is left at the tree's root.

    Args:
        tensor: Flat float32, contiguous, of at most 2**31 elements. The elements that are taken are
        subtracted.
        count: How many elements each rank offers, each merge keeps, and are taken at most; the same
            at all ranks.
        group: The group; None for the default group.
        bounds: This rank's, of the steps before. They do not change what is taken.

    Returns: The elements that were taken; the same at all ranks.

    Raises:
        ValueError: The count is not from 1 to all elements; or the tensor is not as it has to be.
            Or counts or tensors' sizes differ between the ranks: then at all of them.
        FloatingPointError: A rank's tensor has an infinite element or NaN among the largest, or a
            sum is beyond float32; at all ranks, and no tensor has changed.
    """
    if tensor.dim() != 1 or tensor.dtype != torch.float32 or len(tensor) > 1 << _PLACE_BITS:
        raise ValueError(f"the tensor is {tensor.dtype} {tuple(tensor.shape)}, not flat float32")
    if not 1 <= count <= len(tensor):
        raise ValueError(f"count is {count}: it must be from 1 to the {len(tensor)} elements")
    tensor = tensor.detach()
    places = (bounds or Bounds()).largest(tensor, count)
    offered = tensor[places.to(tensor.device)].cpu()
    quantum = agreed_quantum(offered, len(tensor), group)
    if quantum is None:
        return Taken(places[:0], offered[:0])
    quanta = torch.round(offered.to(torch.float64) / quantum).to(torch.int32)
    # An offer may be less than a quantum, and so nothing.
    given = quanta != 0
    own = _List(places[given].to(torch.int32).numpy(), quanta[given].numpy())
    result, through = _up_and_down(own, count, group)
    sums = torch.from_numpy(result.quanta).to(torch.float64).mul_(quantum).to(torch.float32)
    if sums.isinf().any():
        raise FloatingPointError("a sum is beyond the range of float32")
    taken = through.astype(np.int64)
    selection.settle(offered.numpy(), places.numpy(), taken, quantum)
    tensor[places.to(tensor.device)] = offered.to(tensor.device)
    return Taken(torch.from_numpy(result.places).to(torch.int64), sums)


def _up_and_down(
    own: _List, count: int, group: dist.ProcessGroup | None
) -> tuple[_List, np.ndarray]:
    """Return the root's list, and the places of this rank's offers that have come through to it."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    lists = [own]
    # The offers received and their senders, in the order of the merges.
    came: list[tuple[int, np.ndarray]] = []
    parent = None
    stride = 1
    while stride < ranks:
        if rank % (2 * stride):
            parent = rank - stride
            _send(lists[-1], count, parent, group)
            break
        if rank + stride < ranks:
            other = _receive(count, rank + stride, group)
            came.append((rank + stride, other.places))
            lists.append(_merged(lists[-1], other, count))
        stride *= 2
    if parent is None:
        result, through = lists[-1], lists[-1].places
    else:
        result = _receive(count, parent, group)
        mask = torch.empty(len(lists[-1].places), dtype=torch.uint8)
        dist.recv(mask, group=group, group_src=parent)
        through = lists[-1].places[mask.numpy() != 0]
    for merged, (child, places) in zip(reversed(lists[:-1]), reversed(came), strict=True):
        _send(result, count, child, group)
        mask = torch.from_numpy(np.isin(places, through).astype(np.uint8))
        dist.send(mask, group=group, group_dst=child)
        through = np.intersect1d(merged.places, through, assume_unique=True)
    return result, through


def _merged(one: _List, other: _List, count: int) -> _List:
    """Return the `count` largest of two lists' sum; sums of zero are dropped."""
    places, at = np.unique(np.concatenate((one.places, other.places)), return_inverse=True)
    # Whole numbers of 24 bits at most.
    weights = np.concatenate((one.quanta, other.quanta))
    sums = np.bincount(at, weights=weights, minlength=len(places)).astype(np.int32)
    if len(places) > count:
        chosen = largest_of_sums(torch.from_numpy(sums), count).numpy()
        places, sums = places[chosen], sums[chosen]
    return _List(places[sums != 0], sums[sums != 0])


def _send(these: _List, count: int, to: int, group: dist.ProcessGroup | None) -> None:
    message = torch.zeros(1 + 2 * count, dtype=torch.int32)
    size = len(these.places)
    message[0] = size
    message[1 : 1 + size] = torch.from_numpy(these.places)
    message[1 + count : 1 + count + size] = torch.from_numpy(these.quanta)
    dist.send(message, group=group, group_dst=to)


def _receive(count: int, source: int, group: dist.ProcessGroup | None) -> _List:
    message = torch.empty(1 + 2 * count, dtype=torch.int32)
    dist.recv(message, group=group, group_src=source)
    size = int(message[0])
    return _List(message[1 : 1 + size].numpy(), message[1 + count : 1 + count + size].numpy())
