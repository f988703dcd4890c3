"""The order of a model's parameters, the one that is needed first at the front, at all ranks."""

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.distributed as dist

from afflux.overlap.messenger import MessagesFailed
from afflux.overlap.plan import Plan

__all__ = ["agree_on", "agreed_order", "ranked"]


def ranked(order: Iterable[torch.Tensor], names: Mapping[int, str]) -> list[str]:
    """Return the names of parameters in an order that the user gives.

    Args:
        order: Each of the parameters once.
        names: Of all of them, by their identity.

    Raises:
        ValueError: One is missing, or is there twice, or is another tensor.
    """
    found = [id(each) for each in order]
    if set(found) != set(names) or len(found) != len(names):
        raise ValueError(
            f"order must have each of the model's {len(names)} parameters that require a gradient "
            f"once; it has {len(found)} tensors"
        )
    return [names[each] for each in found]


def agreed_order(
    parameters: Mapping[str, torch.Tensor], seen: Sequence[torch.Tensor], group: dist.ProcessGroup
) -> list[str]:
    """Return the names of parameters as rank 0's first forward pass has taken them. Collective.

    The layers of a rank's first forward pass may depend on its samples.

    Args:
        parameters: All of them, by name.
        seen: As this rank's first forward pass has taken them. Those that it has not come last.
        group: The ranks.
    """
    names = list(parameters)
    position = {id(each): number for number, each in enumerate(seen)}
    order = sorted(
        range(len(names)),
        key=lambda number: position.get(id(parameters[names[number]]), len(position)),
    )
    agreed = torch.tensor(order, dtype=torch.int64)
    dist.broadcast(agreed, dist.get_global_rank(group, 0), group=group)
    return [names[number] for number in agreed.tolist()]


def agree_on(plan: Plan, in_order: bool, group: dist.ProcessGroup) -> None:
    """Check that all ranks have the same plan, and send in the same order. Collective.

    Raises:
        MessagesFailed: They do not.
    """
    marks = plan.fingerprint, len(plan.messages), int(in_order)
    own = [*marks, *(-each for each in marks)]
    least = torch.tensor(own, dtype=torch.int32)
    dist.all_reduce(least, op=dist.ReduceOp.MIN, group=group)
    if least.tolist() != own:
        raise MessagesFailed(
            "the ranks have not the same priorities: their parameters, order, message_bytes or "
            "in_order differ"
        )
