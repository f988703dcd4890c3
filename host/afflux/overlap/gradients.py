"""A model's gradients in memory of their own, in the order of a plan."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from afflux.overlap.plan import Message, Plan

__all__ = ["Gradients"]


class Gradients:
    """Copies of gradients, which become their averages message by message.

    Args:
        plan: Where each lies.
        shapes: Of the parameters.
        group: Over which to average. Nobody else may use it.
    """

    def __init__(
        self, plan: Plan, shapes: Sequence[torch.Size], group: dist.ProcessGroup
    ) -> None:
        self._plan = plan
        self._group = group
        self._size = dist.get_world_size(group)
        # Gloo has sums only.
        self._averages = dist.get_backend(group) == "afflux"
        self._memory = {
            dtype: torch.zeros(count, dtype=dtype) for dtype, count in plan.elements.items()
        }
        self._views = [
            self._memory[dtype][place.start : place.stop].view(shape)
            for place, dtype, shape in zip(plan.places, plan.dtypes, shapes, strict=True)
        ]

    def put(self, numbers: Sequence[int], gradients: Sequence[torch.Tensor]) -> None:
        """Copy the gradients of parameters."""
        with torch.no_grad():
            torch._foreach_copy_([self._views[number] for number in numbers], list(gradients))

    def of(self, number: int) -> torch.Tensor:
        """Return a parameter's: its average once its messages are summed. It is not a copy."""
        return self._views[number]

    def average(self, message: Message) -> None:
        """Average what a message has. Collective."""
        part = self._memory[message.dtype][message.start : message.stop]
        if self._averages:
            dist.all_reduce(part, op=dist.ReduceOp.AVG, group=self._group)
        else:
            dist.all_reduce(part, group=self._group)
            part.div_(self._size)
