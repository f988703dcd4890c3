"""In which form Gloo is handed a call whose tensors it would refuse, or get wrong.

Elements that only move, move as bytes. Elements that are summed get a type that Gloo sums without
overflow, where the caller's result needs that: an average's sum may be larger than its type. An
element may become several, in one more dimension, so that parts of a tensor stay parts of it.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from afflux.group.call.description import reduction_of, tensors_in
from afflux.group.call.tensors import dtype_name, lies_plainly, plain
from afflux.group.reducers.exact_sums import summed_exactly

__all__ = ["Form", "Handed", "hand_over", "taken_as_is"]

_GLOO_DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int8, torch.uint8, torch.int32, torch.int64,
)  # fmt: skip
"""The types that Gloo both moves and reduces unchanged; it takes bool for uint8."""

_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
"""Sums, products and bits of the wider type, cut off, are those of the type itself."""

_SHORT = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32)
_ORDERED = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
"""Floats whose greatest and least are found as those of integers: Gloo may lose a NaN."""

_SCATTERS = ("_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
_BITS = ("band", "bor", "bxor")
_REDUCTIONS = ("sum", "product", "min", "max", *_BITS)

_HALF = 32
"""Bits of the parts of which 64 bits are summed."""

_LOW = (1 << _HALF) - 1
_SIGN = torch.iinfo(torch.int64).min

_Change = Callable[[torch.Tensor], torch.Tensor]


class Form(NamedTuple):
    """How Gloo reduces tensors of one dtype.

    Attributes:
        reduction: Gloo's: "sum", "max", …
        give: Returns what Gloo is handed for a contiguous tensor: that itself, or another.
        take: Returns the result, of the caller's dtype, from Gloo's.
    """

    reduction: str
    give: _Change
    take: _Change


class Handed(NamedTuple):
    """A call as Gloo takes it.

    Attributes:
        method: Gloo's.
        arguments: Of it.
        finish: Gives the caller's tensors the results; call it when Gloo is done.
    """

    method: str
    arguments: tuple[Any, ...]
    finish: Callable[[], None]


def taken_as_is(method: str, arguments: tuple[Any, ...], size: int) -> bool:
    """Return whether Gloo takes such a call as it is, if its tensors lie plainly.

    Of a reduce, at its destination.
    """
    if method == "alltoall" or method in _SCATTERS:
        return False
    reduction = reduction_of(arguments)
    try:
        return all(
            each.layout is torch.strided
            and not summed_exactly(each.dtype, reduction)
            and _form(each.dtype, reduction, size) is _AS_IT_IS
            for each in tensors_in(arguments)
        )
    except ValueError:
        return False


def hand_over(method: str, arguments: tuple[Any, ...], rank: int, size: int) -> Handed:
    """Return a call as Gloo takes it. Reads the tensors.

    Args:
        method: Of c10d's `Backend`; its first argument has what it writes.
        arguments: Its arguments.
        rank: Own rank.
        size: Ranks of the group.

    Raises:
        ValueError: There is no form in which the result would be right.
    """
    tensors = tensors_in(arguments)
    if not tensors or any(each.layout is not torch.strided for each in tensors):
        # Gloo sums sparse tensors, and has errors for the rest.
        return Handed(method, arguments, _nothing)
    dtype = tensors[0].dtype
    for each in tensors:
        if each.dtype != dtype:
            names = f"{dtype_name(dtype)} and {dtype_name(each.dtype)}"
            raise ValueError(f"{method}: the tensors are {names}; all must have one dtype")
        if each.is_quantized:
            raise ValueError(f"{method}: Gloo takes no quantized tensor ({dtype_name(dtype)})")
    reduction = reduction_of(arguments)
    form = _form(dtype, reduction, size)
    options = arguments[-1]
    # Gloo's reduce sums in the tensors of all ranks, and only the destination's is to change.
    written = method != "reduce" or options.rootRank == rank
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def given(value: Any, output: bool) -> Any:
        if isinstance(value, list | tuple):
            return [given(each, output) for each in value]
        if not isinstance(value, torch.Tensor):
            return value
        made = form.give(plain(value.data))
        if output and written:
            pairs.append((value, made))
        elif output and made.data_ptr() == value.data_ptr():
            made = made.clone()
        return value if form is _AS_IT_IS and made.data_ptr() == value.data_ptr() else made

    def finish() -> None:
        for own, made in pairs:
            taken = form.take(made)
            if taken.data_ptr() == own.data_ptr() and lies_plainly(own):
                continue
            # A tensor that was made in inference mode may be written only there.
            with torch.inference_mode(own.is_inference()):
                own.data.copy_(taken.view(own.dtype).view(own.shape))

    changed = [given(each, output=number == 0) for number, each in enumerate(arguments)]
    if form.reduction not in ("", reduction):
        changed[-1] = _with_reduction(options, form.reduction)
    if method == "alltoall":
        # Gloo's own is for lists of tensors of one size.
        outputs, inputs, _ = changed
        return _joined_lists(outputs, inputs, options, finish)
    if method in _SCATTERS:
        outputs, inputs, _ = (
            changed if isinstance(changed[0], list) else ([changed[0]], [changed[1]], 0)
        )
        if [own.numel() * size for own in outputs] == [each.numel() for each in inputs]:
            own_inputs = {each.data_ptr() for each in tensors_in(arguments)}
            sums = [each.clone() if each.data_ptr() in own_inputs else each for each in inputs]
            return _scattered(outputs, sums, changed[-1], rank, finish)
        # Gloo has an error for that.
    return Handed(method, tuple(changed), finish)


def _joined_lists(
    outputs: list[torch.Tensor],
    inputs: list[torch.Tensor],
    options: Any,
    finish: Callable[[], None],
) -> Handed:
    """Return an all-to-all of lists as one of two tensors of bytes, with the parts' sizes."""
    parts = [[_as_bytes(each).reshape(-1) for each in side] for side in (outputs, inputs)]
    sizes = [[each.numel() for each in side] for side in parts]
    received, sent = (torch.cat(side) for side in parts)

    def part() -> None:
        for own, each in zip(parts[0], received.split(sizes[0]), strict=True):
            own.copy_(each)
        finish()

    return Handed("alltoall_base", (received, sent, *sizes, options), part)


def _scattered(
    outputs: list[torch.Tensor],
    sums: list[torch.Tensor],
    options: Any,
    rank: int,
    finish: Callable[[], None],
) -> Handed:
    """Return a reduce-scatter as the all-reduce that it is in Gloo, too.

    Gloo's own waits for it without a limit, so that a rank that waits would not hear of a death.
    """
    changed = dist.AllreduceCoalescedOptions()
    changed.reduceOp, changed.timeout = options.reduceOp, options.timeout

    def part() -> None:
        for own, each in zip(outputs, sums, strict=True):
            flat = each.reshape(-1)
            piece = flat[rank * own.numel() : (rank + 1) * own.numel()].view(own.shape)
            with torch.inference_mode(own.is_inference()):
                own.copy_(piece)
        finish()

    return Handed("allreduce_coalesced", (sums, changed), part)


def reduced_form(dtype: torch.dtype, reduction: str, size: int) -> Form:
    """Return the form in which Gloo reduces such tensors.

    Args:
        dtype: Of the caller's tensors.
        reduction: "sum", "avg", …
        size: Ranks of the group.

    Raises:
        ValueError: There is none.
    """
    form = _average(dtype, size) if reduction == "avg" else _plain(dtype, reduction)
    if form is None:
        raise ValueError(f"there is no {reduction} of {dtype_name(dtype)}")
    return form


def _form(dtype: torch.dtype, reduction: str, size: int) -> Form:
    if reduction:
        return reduced_form(dtype, reduction, size)
    return _AS_IT_IS if dtype in _GLOO_DTYPES else _BYTES


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _nothing() -> None:
    return None


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    # One more dimension: the first one, which all-to-all splits, stays.
    return tensor.unsqueeze(-1).view(torch.uint8)


_AS_IT_IS = Form("", _same, _same)
_BYTES = Form("", _as_bytes, _same)


def _plain(dtype: torch.dtype, reduction: str) -> Form | None:
    """Return the form of all but averages."""
    if reduction not in _REDUCTIONS or (reduction in _BITS and dtype.is_floating_point):
        return None
    if dtype in _ORDERED and reduction in ("min", "max"):
        return _extreme(dtype, reduction == "max")
    if dtype in _GLOO_DTYPES:
        return _AS_IT_IS
    if dtype is torch.bool:
        # A sum of bytes would be 2 where two are true.
        numbers = {"sum": "max", "product": "min"}.get(reduction, reduction)
        return Form(numbers, lambda x: x.to(torch.uint8), lambda x: x.to(torch.bool))
    if dtype.is_complex and reduction == "sum":
        return Form("sum", torch.view_as_real, torch.view_as_complex)
    if dtype in _WIDER:
        wide = _WIDER[dtype]
        return Form(reduction, lambda x: x.to(wide), lambda x: x.to(dtype))
    if dtype is torch.uint64:
        if reduction in ("min", "max"):
            # In the order of signed numbers.
            return Form(
                reduction,
                lambda x: x.view(torch.int64) ^ _SIGN,
                lambda x: (x ^ _SIGN).view(torch.uint64),
            )
        return Form(reduction, lambda x: x.view(torch.int64), lambda x: x.view(torch.uint64))
    return None


def _extreme(dtype: torch.dtype, greatest: bool) -> Form:
    """Return the form of the greatest or least number: a NaN wins, and -0 is less than +0."""
    bits = _ORDERED[dtype]
    low, high = torch.iinfo(bits).min, torch.iinfo(bits).max

    def mirrored(integers: torch.Tensor) -> torch.Tensor:
        # The order of floats is that of their bits, but that of negative ones is upside down.
        return torch.where(integers < 0, integers ^ high, integers)

    def give(floats: torch.Tensor) -> torch.Tensor:
        order = mirrored(floats.view(bits))
        return order.masked_fill_(floats.isnan(), high if greatest else low).to(torch.int32)

    def take(order: torch.Tensor) -> torch.Tensor:
        floats = mirrored(order.to(bits)).view(dtype)
        # All NaN are one.
        return floats.masked_fill_(floats.isnan(), torch.nan)

    return Form("max" if greatest else "min", give, take)


def _average(dtype: torch.dtype, size: int) -> Form | None:
    """Return the form of an average; those of integers are cut off, as NCCL's are."""
    if dtype in _SHORT:
        return Form(
            "sum",
            lambda x: x.to(torch.int64),
            lambda x: x.div(size, rounding_mode="trunc").to(dtype),
        )
    if dtype in (torch.int64, torch.uint64):
        return Form("sum", _split, functools.partial(_joined, dtype=dtype, size=size))
    if dtype is torch.float64:
        # By a power of two, so that only the smallest numbers lose bits, and then by the rest.
        scale = 1 << (size - 1).bit_length()
        return Form("sum", lambda x: x / scale, lambda x: x.div_(size / scale))
    if dtype.is_complex:
        real = _average(dtype.to_real(), size)
        if real is not None:
            give, take = real.give, real.take
            return Form(
                "sum",
                lambda x: give(torch.view_as_real(x)),
                lambda x: torch.view_as_complex(take(x)),
            )
    return None


def _split(tensor: torch.Tensor) -> torch.Tensor:
    """Return the upper and lower bits of 64: sums of these fit."""
    bits = tensor.view(torch.int64)
    upper = bits >> _HALF
    if tensor.dtype is torch.uint64:
        upper = upper & _LOW
    return torch.stack([upper, bits & _LOW], dim=-1)


def _joined(sums: torch.Tensor, dtype: torch.dtype, size: int) -> torch.Tensor:
    """Return the sum of what has been split, divided."""
    upper, lower = sums.unbind(-1)
    upper, lower = upper + (lower >> _HALF), lower & _LOW
    quotient = upper.div(size, rounding_mode="floor")
    rest = ((upper - quotient * size) << _HALF) + lower
    quotient = (quotient << _HALF) + rest.div(size, rounding_mode="floor")
    # Towards zero.
    quotient += (upper < 0) & (rest % size != 0)
    return quotient.view(dtype)


def _with_reduction(options: Any, reduction: str) -> Any:
    """Return the same options with another reduction."""
    copy = type(options)()
    for name in ("rootRank", "rootTensor", "timeout", "asyncOp"):
        if hasattr(options, name):
            setattr(copy, name, getattr(options, name))
    copy.reduceOp = getattr(dist.ReduceOp, reduction.upper())
    return copy
