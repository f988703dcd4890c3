"""All-reduces of one plain tensor, as most calls are: what is the same for all of a kind is kept.

Of a call of a few bytes, most time went into finding that out anew.
"""

from typing import Any

import torch

from afflux.group.call.collectives import Asked, Part
from afflux.group.call.description import Call

__all__ = ["PlainCalls"]

_KINDS_MAX = 4096
"""A training loop has some hundreds."""

_TYPES = (torch.Tensor, torch.nn.Parameter)
"""Not a wrapper, which may have no memory of its own."""

Planned = list[tuple[Part, Any]]
"""A call's collectives, with the reducer's plans."""


class PlainCalls:
    """The kinds of such calls that a group has seen."""

    def __init__(self) -> None:
        self._kinds: dict[Any, tuple[Call, Asked, Any]] = {}

    def find(self, method: str, arguments: tuple[Any, ...]) -> tuple[Call, Planned] | None:
        """Return the call and its only collective, if its kind is known."""
        if method != "allreduce":
            return None
        kind = self._kinds.get(_kind(arguments))
        if kind is None:
            return None
        call, asked, plan = kind
        return call, [(Part(asked, [], list(arguments[0])), plan)]

    def keep(self, method: str, arguments: tuple[Any, ...], call: Call, planned: Planned) -> None:
        """Keep what has been found out of a call that nothing is wrong with."""
        key = _kind(arguments) if method == "allreduce" else None
        if key is None:
            return
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        ((part, plan),) = planned
        self._kinds[key] = call, part.asked, plan


def _kind(arguments: tuple[Any, ...]) -> Any:
    tensors, options = arguments
    if len(tensors) != 1:
        return None
    (tensor,) = tensors
    if (
        type(tensor) not in _TYPES
        or not tensor.is_cpu
        or tensor.layout is not torch.strided
        or not tensor.is_contiguous()
    ):
        return None
    return tensor.dtype, tensor.shape, int(options.reduceOp.op)
