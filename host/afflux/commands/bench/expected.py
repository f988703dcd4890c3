"""Checks a result element by element, against sums made here in another way.

Integers, maxima and minima must be equal. Floating-point sums must lie within the bound that
`docs/protocol.md`, section 8.2, states (Gloo's and MPI's: within that of serial summation), and the
blocks at both ends of the tensor, the whole of it if it is small, must be those of the golden model
to the bit.
"""

from collections.abc import Sequence

import numpy as np
import torch

from afflux.commands.bench.inputs import BLOCK, Inputs
from afflux_sim.golden import numbers as golden_numbers

__all__ = ["wrong_elements"]

_GOLDEN_ELEMENTS = 4096
"""Compared with the golden model at either end of a tensor, as it takes microseconds for each; a
multiple of BLOCK."""

_GOLDEN_NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int32: "int32",
}
_INTEGERS = (torch.int32, torch.int64)
_FRACTION_BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
_LEAST_EXPONENT = {torch.float32: -126, torch.float16: -14, torch.bfloat16: -126}


def wrong_elements(
    result: torch.Tensor, inputs: Inputs, op: str, of_engine: bool, to_the_bit: bool = True
) -> int:
    """Return how many elements of `result` are wrong.

    Args:
        result: Of shape (inputs.count,).
        inputs: The ranks' contributions.
        op: "sum", "avg", "max" or "min".
        of_engine: Whether they are our engine's numbers, right to the bit; others are right within
            the bound of serial summation.
        to_the_bit: Whether our engine's numbers are compared with the golden model too. If not,
            they may as well have been summed by others.
    """
    wrong = 0
    # The golden model has the types that the protocol has.
    golden_too = of_engine and to_the_bit and inputs.dtype in _GOLDEN_NAMES
    for where in inputs.pieces():
        parts = [inputs.piece(rank, where) for rank in range(inputs.ranks)]
        got = result[where]
        if op in ("max", "min") or inputs.dtype in _INTEGERS:
            bad = got != _exact(parts, op)
        else:
            bad = ~_within_bound(got, parts, op, of_engine, to_the_bit)
        if golden_too:
            for end in _ends(where, inputs.count):
                golden = _golden([part[end] for part in parts], op, inputs.count > _GOLDEN_ELEMENTS)
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
    got: torch.Tensor, parts: Sequence[torch.Tensor], op: str, of_engine: bool, to_the_bit: bool
) -> torch.Tensor:
    dtype, ranks = got.dtype, len(parts)
    total = torch.zeros(got.numel(), dtype=torch.float64)
    magnitudes = torch.zeros_like(total)
    largest = torch.zeros_like(total)
    for part in parts:
        exact = part.double()
        total += exact
        exact.abs_()
        magnitudes += exact
        torch.maximum(largest, exact, out=largest)
    # Each of N - 1 additions, and a division, rounds once.
    bound = 1.01 * ranks * 2.0 ** -(_FRACTION_BITS[dtype] + 1) * magnitudes
    if of_engine:
        of_block = _block_bound(largest, ranks)
        bound = of_block if to_the_bit else torch.maximum(bound, of_block)
    # The sums in double are not exact either.
    bound += ranks * 2.0**-52 * magnitudes
    if op == "avg":
        total /= ranks
        bound /= ranks
    result = got.double()
    bound += _half_ulp(torch.maximum(total.abs(), result.abs()), dtype)
    if of_engine:
        # A block that is zero at all ranks is zero in the result.
        bound[_largest_of_block(largest) == 0] = 0.0
    return (result - total).abs() <= bound


def _block_bound(largest: torch.Tensor, ranks: int) -> torch.Tensor:
    """Return N · 2^(e + g − 31), where 2^e ≤ largest magnitude in the block < 2^(e + 1)."""
    _, exponent = torch.frexp(_largest_of_block(largest))
    e = (exponent - 1).clamp(min=-126).double()
    guard = (ranks - 1).bit_length()
    return ranks * torch.exp2(e + guard - 31)


def _largest_of_block(magnitudes: torch.Tensor) -> torch.Tensor:
    """Return for each element the largest of its block; shape as given."""
    count = magnitudes.numel()
    padded = torch.nn.functional.pad(magnitudes, (0, -count % BLOCK)).view(-1, BLOCK)
    return padded.amax(dim=1).repeat_interleave(BLOCK)[:count]


def _half_ulp(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    _, exponent = torch.frexp(magnitude)
    e = (exponent - 1).clamp(min=_LEAST_EXPONENT[dtype]).double()
    return torch.exp2(e - _FRACTION_BITS[dtype] - 1)


def _ends(where: slice, count: int) -> list[slice]:
    """Return the parts of a piece, relative to it, that the golden model computes too."""
    length = where.stop - where.start
    found = [slice(0, min(length, _GOLDEN_ELEMENTS))] if where.start == 0 else []
    if where.stop == count and length > _GOLDEN_ELEMENTS:
        found.append(slice((length - 1) // BLOCK * BLOCK - _GOLDEN_ELEMENTS + BLOCK, length))
    return found


def _golden(parts: Sequence[torch.Tensor], op: str, part_of_larger: bool) -> torch.Tensor:
    dtype = parts[0].dtype
    # numpy has no bfloat16: its bits instead.
    arrays = [
        _bits(part).numpy().view(np.uint16) if dtype == torch.bfloat16 else part.numpy()
        for part in parts
    ]
    found = golden_numbers.all_reduce(arrays, _GOLDEN_NAMES[dtype], op, part=part_of_larger)
    if dtype == torch.bfloat16:
        return torch.from_numpy(found.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(found))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)
