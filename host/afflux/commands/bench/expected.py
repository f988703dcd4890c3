"""Checks a result element by element, against sums made here in another way.

Integers, maxima and minima must be equal. Floating-point sums must be rounded once (Gloo's and
MPI's: lie within the bound of serial summation), as far as sums in double can tell, and those at
both ends of the tensor, of the whole of it if it is small, must be the golden model's to the bit.
"""

from collections.abc import Sequence

import numpy as np
import torch

from afflux.commands.bench.inputs import Inputs
from afflux_sim.golden.reductions import all_reduce

__all__ = ["wrong_elements"]

_GOLDEN_ELEMENTS = 4096
"""Compared with the golden model at either end of a tensor, as it takes microseconds for each."""

_GOLDEN_NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int32: "int32",
}
_INTEGERS = (torch.int32, torch.int64)
_FRACTION_BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
_LEAST_EXPONENT = {torch.float32: -126, torch.float16: -14, torch.bfloat16: -126}


def wrong_elements(result: torch.Tensor, inputs: Inputs, op: str, of_engine: bool) -> int:
    """Return how many elements of `result` are wrong.

    Args:
        result: Of shape (inputs.count,).
        inputs: The ranks' contributions.
        op: "sum", "avg", "max" or "min".
        of_engine: Whether they are ours, right to the bit; others are right within the bound of
            serial summation.
    """
    wrong = 0
    # The golden model has the types that the protocol has.
    golden_too = of_engine and inputs.dtype in _GOLDEN_NAMES
    for where in inputs.pieces():
        parts = [inputs.piece(rank, where) for rank in range(inputs.ranks)]
        got = result[where]
        if op in ("max", "min") or inputs.dtype in _INTEGERS:
            bad = got != _exact(parts, op)
        else:
            bad = ~_within_bound(got, parts, op, of_engine)
        if golden_too:
            for end in _ends(where, inputs.count):
                golden = _golden([part[end] for part in parts], op)
                bad[end] |= _bits(got[end]) != _bits(golden)
        wrong += int(bad.sum())
    return wrong


def _exact(parts: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    if op == "sum":
        # Narrowing wraps, as the protocol says.
        total = sum((part.long() for part in parts), torch.zeros_like(parts[0], dtype=torch.int64))
        return total.to(parts[0].dtype)
    choose = torch.maximum if op == "max" else torch.minimum
    result = parts[0]
    for part in parts[1:]:
        result = choose(result, part)
    return result


def _within_bound(
    got: torch.Tensor, parts: Sequence[torch.Tensor], op: str, of_engine: bool
) -> torch.Tensor:
    dtype, ranks = got.dtype, len(parts)
    total = torch.zeros(got.numel(), dtype=torch.float64)
    magnitudes = torch.zeros_like(total)
    for part in parts:
        exact = part.double()
        total += exact
        exact.abs_()
        magnitudes += exact
    bound = torch.zeros_like(total)
    if not of_engine:
        # Each of N - 1 additions, and a division, rounds once.
        bound += 1.01 * ranks * 2.0 ** -(_FRACTION_BITS[dtype] + 1) * magnitudes
    # The sums in double are not exact either.
    bound += ranks * 2.0**-52 * magnitudes
    if op == "avg":
        total /= ranks
        bound /= ranks
    result = got.double()
    # The scaled sum is rounded, and once more where it is divided by no power of two.
    half = _half_ulp(torch.maximum(total.abs(), result.abs()), dtype)
    bound += half if op == "sum" else 2 * half
    # Nothing is added to zeros.
    bound[magnitudes == 0] = 0.0
    return (result - total).abs() <= bound


def _half_ulp(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    _, exponent = torch.frexp(magnitude)
    e = (exponent - 1).clamp(min=_LEAST_EXPONENT[dtype]).double()
    return torch.exp2(e - _FRACTION_BITS[dtype] - 1)


def _ends(where: slice, count: int) -> list[slice]:
    """Return the parts of a piece, relative to it, that the golden model computes too."""
    length = where.stop - where.start
    found = [slice(0, min(length, _GOLDEN_ELEMENTS))] if where.start == 0 else []
    if where.stop == count and length > _GOLDEN_ELEMENTS:
        found.append(slice(length - _GOLDEN_ELEMENTS, length))
    return found


def _golden(parts: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    dtype = parts[0].dtype
    # numpy has no bfloat16: its bits instead.
    arrays = [
        _bits(part).numpy().view(np.uint16) if dtype == torch.bfloat16 else part.numpy()
        for part in parts
    ]
    found = all_reduce(arrays, _GOLDEN_NAMES[dtype], op)
    if dtype == torch.bfloat16:
        return torch.from_numpy(found.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(found))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)
