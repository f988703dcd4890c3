"""A model's gradients in memory of their own, in the order of a plan."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from afflux.overlap.plan import Message, Plan
from afflux.schemes.compressor import Compressor

__all__ = ["Gradients"]


class Gradients:
    """Copies of gradients, which become their averages message by message.

    Args:
        plan: Where each lies.
        shapes: Of the parameters.
        group: Over which to average. Nobody else may use it.
        compressor: Averages a part of each message; the remainder is added to the next gradient if
            it is biased. None: everything is averaged.
    """

    def __init__(
        self,
        plan: Plan,
        shapes: Sequence[torch.Size],
        group: dist.ProcessGroup,
        compressor: Compressor | None = None,
    ) -> None:
        self._plan = plan
        self._group = group
        self._size = dist.get_world_size(group)
        self._compressor = compressor
        # Gloo has sums only.
        self._averages = "cpu:afflux" in dist.get_backend_config(group)
        self._memory = {
            dtype: torch.zeros(count, dtype=dtype) for dtype, count in plan.elements.items()
        }
        self._views = _views(plan, shapes, self._memory)
        self._left: dict[torch.dtype, torch.Tensor] = {}
        if compressor is not None:
            self._left = {
                dtype: torch.zeros(count, dtype=torch.float32)
                for dtype, count in plan.elements.items()
            }
        self._left_views = _views(plan, shapes, self._left) if compressor is not None else []

    def put(self, numbers: Sequence[int], gradients: Sequence[torch.Tensor]) -> None:
        """Copy the gradients of parameters, or add them to what is left of earlier ones."""
        with torch.no_grad():
            if self._compressor is None:
                torch._foreach_copy_([self._views[each] for each in numbers], list(gradients))
                return
            for number, gradient in zip(numbers, gradients, strict=True):
                self._left_views[number].add_(gradient)

    def of(self, number: int) -> torch.Tensor:
        """Return a parameter's: its average once its messages are summed. It is not a copy."""
        return self._views[number]

    def average(self, message: Message) -> None:
        """Average what a message has. Collective."""
        part = self._memory[message.dtype][message.start : message.stop]
        if self._compressor is not None:
            self._take(self._compressor, message, part)
        elif self._averages:
            dist.all_reduce(part, op=dist.ReduceOp.AVG, group=self._group)
        else:
            dist.all_reduce(part, group=self._group)
            part.div_(self._size)

    def _take(self, compressor: Compressor, message: Message, part: torch.Tensor) -> None:
        left = self._left[message.dtype][message.start : message.stop]
        wide = part if part.dtype == torch.float32 else torch.empty_like(left)
        compressor.take(left, wide, self._group)
        if wide is not part:
            part.copy_(wide)
        if not compressor.biased:
            left.zero_()


def _views(
    plan: Plan, shapes: Sequence[torch.Size], memory: dict[torch.dtype, torch.Tensor]
) -> list[torch.Tensor]:
    return [
        memory[dtype][place.start : place.stop].view(shape)
        for place, dtype, shape in zip(plan.places, plan.dtypes, shapes, strict=True)
    ]
