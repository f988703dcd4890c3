"""Sums of elements of very different sizes, which come in slices, and their one right result."""

import numpy as np
import torch

from afflux_sim.golden.reductions import reduce_numbers

__all__ = ["COUNT", "bits", "contribution", "expected"]

COUNT = 2_500
"""Elements: 40 blocks of float32, of which the last one is short."""


def contribution(rank: int, number: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return elements of very different sizes, some of which cancel each other; and zeros."""
    generator = torch.Generator().manual_seed(1000 * number + rank)
    if dtype is torch.int32:
        return torch.randint(-(2**31), 2**31, (COUNT,), generator=generator, dtype=torch.int32)
    exponents = 30 * torch.rand(COUNT, generator=generator)
    tensor = torch.randn(COUNT, generator=generator) * exponents.exp2()
    tensor[700:1000] = 0
    return tensor.to(dtype)


def bits(tensor: torch.Tensor) -> list[int]:
    """Return the elements' bits as integers."""
    size = tensor.element_size()
    return tensor.view(torch.int32 if size == 4 else torch.int16).tolist()


def expected(
    number: int, dtype: str = "float32", reduction: str = "sum", size: int = 3
) -> list[int]:
    """Return the bits of the one right result."""
    columns = [bits(contribution(rank, number, getattr(torch, dtype))) for rank in range(size)]
    if dtype == "int32":
        totals = np.array(columns).sum(axis=0)
        return ((totals + 2**31) % 2**32 - 2**31).tolist()
    width = 32 if dtype == "float32" else 16
    unsigned = [[x % (1 << width) for x in column] for column in columns]
    found = reduce_numbers(unsigned, dtype, reduction)
    return [x - (1 << width) if x >> (width - 1) else x for x in found]
