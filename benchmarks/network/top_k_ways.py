"""Other ways to give only the largest elements than gTop-k's usual one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from afflux.compressors.block_top_k import BlockTopK
from afflux.compressors.gtopk import Taken, take_global_top_k
from afflux.compressors.gtopk_tree import take_by_tree
from afflux.compressors.whole import Whole
from afflux.schemes.selected import Selected
from benchmarks.report.sides import Side

__all__ = ["WAYS", "way_side"]

_TOLERANCE = 1e-4


def _dense(tensor: torch.Tensor, taken: Taken) -> torch.Tensor:
    return torch.zeros_like(tensor).index_add_(0, taken.places, taken.sums)


WAYS = ("network", "tree", "blocks")
"""Names of cases: gTop-k in the network, by the paper's tree; and blocks with the largest norms."""


def way_side(
    group: Any, way: str, tensor: torch.Tensor, count: int, restore: Callable[[], None]
) -> Side:
    """Return a sum of the ranks' largest elements.

    Args:
        group: Of the contender.
        way: One of `WAYS`.
        tensor: Flat float32; what is taken is subtracted from it.
        count: How many elements each rank gives.
        restore: Makes the tensor as it was.
    """
    ranks = dist.get_world_size(group)
    call: Callable[[], Any]
    if way == "blocks":
        compressor = Selected(BlockTopK(count / len(tensor)), Whole())
        average = torch.empty_like(tensor)
        call = partial(compressor.take, tensor, average, group)
    elif way == "tree":
        call = partial(take_by_tree, tensor, count, group)
    else:
        call = partial(take_global_top_k, tensor, count, group, way="network")

    def wrong() -> int:
        restore()
        before = tensor.clone()
        taken = call()
        given = _dense(tensor, taken) if isinstance(taken, Taken) else average * ranks
        # What this rank had and has no more, summed over the ranks.
        dist.all_reduce(before.sub_(tensor), group=group)
        return int((before - given).abs().gt(_TOLERANCE).sum())

    return Side(call, wrong)
