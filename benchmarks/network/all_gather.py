"""Top-k by all-gather: every rank gets every rank's largest elements, and adds them up.

It is what gTop-k is measured against. Nothing is selected from the sum, so a step takes up to as
many times the elements as there are ranks.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from afflux_drivers.selection import largest
from benchmarks.report.sides import Side

__all__ = ["SELECTIONS", "all_gather_side"]

# The newer name, where torch has it; it warns of the older one.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

Select = Callable[[torch.Tensor, int], torch.Tensor]


def _by_afflux(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return torch.from_numpy(largest(tensor.numpy(), count))


def _by_torch(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return torch.topk(tensor.abs(), count, sorted=False).indices


SELECTIONS: dict[str, Select] = {"all_gather": _by_afflux, "all_gather_torch": _by_torch}
"""The search of a rank's largest elements, by name of the contender."""


def all_gather_side(
    group: Any, select: Select, tensor: torch.Tensor, count: int, restore: Callable[[], None]
) -> Side:
    """Return the sum of the ranks' largest elements.

    Args:
        group: Gloo's.
        select: Finds a rank's largest elements.
        tensor: Flat float32; elements that are sent become zero there.
        count: How many each rank sends.
        restore: Makes the tensor as it was.
    """
    ranks = dist.get_world_size(group)

    def call() -> torch.Tensor:
        places = select(tensor, count)
        values = tensor[places]
        tensor[places] = 0.0
        message = torch.cat((places.to(torch.int32), values.view(torch.int32)))
        messages = message.new_empty(ranks * 2 * count)
        _all_gather(messages, message, group=group)
        messages = messages.view(ranks, 2 * count)
        everywhere = messages[:, :count].reshape(1, -1).to(torch.int64)
        values = messages[:, count:].reshape(-1).view(torch.float32)
        return torch.sparse_coo_tensor(
            everywhere, values, tensor.shape, check_invariants=False
        ).coalesce()

    def wrong() -> int:
        restore()
        before = torch.zeros_like(tensor)
        before.copy_(tensor)
        got = call()
        # The elements that left this rank, summed over the ranks.
        dist.all_reduce(before.sub_(tensor), group=group)
        before[got.indices()[0]] -= got.values()
        return int((before.abs() > 1e-4).sum())

    return Side(call, wrong)
