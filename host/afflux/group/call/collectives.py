"""Which tensors a collective reads and writes, whichever of torch's methods asked for it."""

from dataclasses import dataclass
from typing import Any

import torch

from afflux.group.call.description import reduction_name
from afflux.group.call.tensors import dtype_name

__all__ = ["Asked", "Part", "parts_of"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A reducer's task: the same for all calls of one kind.

    Attributes:
        collective: "all_reduce", "broadcast", "all_gather" or "reduce_scatter".
        dtype: Type of the elements.
        shape: Sizes of the smallest tensor: of the whole one, of a rank's part of an all-gather, of
            a shard of a reduce-scatter.
        reduction: "sum", "avg", …; empty for a collective that only moves.
        root: Rank whose tensor a broadcast copies; otherwise 0.
    """

    collective: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    reduction: str = ""
    root: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One collective with its tensors: a call has one, or several if it is coalesced.

    Attributes:
        asked: The collective.
        inputs: Tensors that it reads: one, or one for each rank; none if it is done in place.
        outputs: Tensors that it writes: one, or one for each rank.
    """

    asked: Asked
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]

    @property
    def small(self) -> torch.Tensor:
        """The tensor of a rank's own elements."""
        return self.inputs[0] if self.asked.collective == "all_gather" else self.outputs[0]


def parts_of(method: str, arguments: tuple[Any, ...], size: int) -> list[Part] | None:
    """Return a call's collectives; None if it is none of those that a reducer may carry out.

    Args:
        method: Method of `Group`.
        arguments: Its arguments, options last.
        size: Ranks of the group.

    Raises:
        ValueError: The tensors do not fit one another.
    """
    split = _SPLITS.get(method)
    return None if split is None else split(method, arguments, size)


def _all_reduce(method: str, arguments: tuple[Any, ...], size: int) -> list[Part]:
    tensors, options = arguments
    reduction = reduction_name(options.reduceOp)
    return [
        Part(Asked("all_reduce", each.dtype, tuple(each.shape), reduction), [], [each])
        for each in tensors
    ]


def _broadcast(method: str, arguments: tuple[Any, ...], size: int) -> list[Part] | None:
    tensors, options = arguments
    if len(tensors) != 1 or options.rootTensor != 0 or not 0 <= options.rootRank < size:
        # Gloo has an error for it.
        return None
    (tensor,) = tensors
    asked = Asked("broadcast", tensor.dtype, (tensor.numel(),), root=options.rootRank)
    return [Part(asked, [], [tensor])]


def _gathered(method: str, tensor: torch.Tensor, outputs: list[torch.Tensor], size: int) -> Part:
    _check_fit(method, "input", tensor, "output", outputs, size)
    return Part(Asked("all_gather", tensor.dtype, (tensor.numel(),)), [tensor], outputs)


def _all_gather(method: str, arguments: tuple[Any, ...], size: int) -> list[Part] | None:
    outputs, inputs, _ = arguments
    if len(inputs) != 1 or len(outputs) != 1:
        return None
    return [_gathered(method, inputs[0], list(outputs[0]), size)]


def _all_gather_base(method: str, arguments: tuple[Any, ...], size: int) -> list[Part]:
    output, tensor, _ = arguments
    return [_gathered(method, tensor, [output], size)]


def _all_gather_base_coalesced(method: str, arguments: tuple[Any, ...], size: int) -> list[Part]:
    outputs, inputs, _ = arguments
    pairs = zip(outputs, inputs, strict=True)
    return [_gathered(method, tensor, [output], size) for output, tensor in pairs]


def _all_gather_coalesced(method: str, arguments: tuple[Any, ...], size: int) -> list[Part] | None:
    lists, inputs, _ = arguments
    if len(lists) != size or any(len(each) != len(inputs) for each in lists):
        return None
    return [
        _gathered(method, tensor, [each[number] for each in lists], size)
        for number, tensor in enumerate(inputs)
    ]


def _scattered(
    method: str, output: torch.Tensor, inputs: list[torch.Tensor], options: Any, size: int
) -> Part:
    _check_fit(method, "output", output, "input", inputs, size)
    reduction = reduction_name(options.reduceOp)
    asked = Asked("reduce_scatter", output.dtype, (output.numel(),), reduction)
    return Part(asked, inputs, [output])


def _reduce_scatter(method: str, arguments: tuple[Any, ...], size: int) -> list[Part] | None:
    outputs, inputs, options = arguments
    if len(outputs) != 1 or len(inputs) != 1:
        return None
    return [_scattered(method, outputs[0], list(inputs[0]), options, size)]


def _reduce_scatter_base(method: str, arguments: tuple[Any, ...], size: int) -> list[Part]:
    output, tensor, options = arguments
    return [_scattered(method, output, [tensor], options, size)]


def _reduce_scatter_base_coalesced(
    method: str, arguments: tuple[Any, ...], size: int
) -> list[Part]:
    outputs, inputs, options = arguments
    pairs = zip(outputs, inputs, strict=True)
    return [_scattered(method, output, [tensor], options, size) for output, tensor in pairs]


_SPLITS = {
    "allreduce": _all_reduce,
    "allreduce_coalesced": _all_reduce,
    "broadcast": _broadcast,
    "allgather": _all_gather,
    "_allgather_base": _all_gather_base,
    "allgather_into_tensor_coalesced": _all_gather_base_coalesced,
    "allgather_coalesced": _all_gather_coalesced,
    "reduce_scatter": _reduce_scatter,
    "_reduce_scatter_base": _reduce_scatter_base,
    "reduce_scatter_tensor_coalesced": _reduce_scatter_base_coalesced,
}


def _check_fit(
    method: str, one: str, small: torch.Tensor, other: str, large: list[torch.Tensor], size: int
) -> None:
    """Check that the small tensor is one of `size` parts of the large one, or as large as each."""
    for tensor in large:
        if tensor.dtype != small.dtype:
            raise ValueError(
                f"{method}: the {one} is {dtype_name(small.dtype)}, but the {other} "
                f"{dtype_name(tensor.dtype)}"
            )
    if len(large) == 1 and (size == 1 or large[0].numel() == small.numel() * size):
        fits = large[0].numel() == small.numel() * size
    else:
        fits = len(large) == size and all(each.numel() == small.numel() for each in large)
    if not fits:
        shapes = ", ".join(str(tuple(each.shape)) for each in large)
        raise ValueError(
            f"{method}: the {one} of shape {tuple(small.shape)} and the {other} of shape {shapes} "
            f"do not fit a group of {size} ranks"
        )
