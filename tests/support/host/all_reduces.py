"""All-reduces of all kinds, whose digests ranks compare between ways of summing."""

import hashlib
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

__all__ = ["LARGE", "are_right", "digest", "drawn", "reductions", "together"]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
OPS = ("SUM", "AVG", "MAX", "MIN", "PRODUCT")
SHAPES = ((0,), (3,), (64, 5), (20_011,))
LARGE = 400_009
"""Elements of more pieces than one."""


def drawn(shape: tuple[int, ...], dtype: torch.dtype, rank: int, seed: int) -> torch.Tensor:
    """Return numbers of all sizes, zeros of both signs, infinities and NaN; of many blocks none."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    tensor = torch.randn(shape, generator=generator)
    tensor *= 2.0 ** torch.randint(-20, 20, shape, generator=generator)
    chosen = torch.rand(shape, generator=generator)
    if dtype.is_floating_point:
        for n, value in enumerate((torch.nan, torch.inf, -torch.inf, -0.0)):
            tensor[chosen < 0.0005 * (4 - n)] = value
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), 256):
        if torch.rand((), generator=generator) < 0.4:
            flat[start : start + 256] = 0.0
    return tensor.to(dtype) if dtype.is_floating_point else tensor.clamp(-1e9, 1e9).to(dtype)


def digest(*tensors: torch.Tensor) -> str:
    whole = hashlib.sha256()
    for each in tensors:
        whole.update(each.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def reductions(rank: int, group: Any) -> dict[str, str]:
    found = {}
    for seed, dtype in enumerate((*FLOATS, *INTEGERS, torch.float64)):
        for name in OPS:
            for shape in SHAPES:
                tensor = drawn(shape, dtype, rank, seed)
                # With strides of its own, too.
                tensor = tensor.t() if len(shape) == 2 else tensor
                dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name), group=group)
                found[f"all_reduce {dtype} {name} {shape}"] = digest(tensor)
    for dtype in (torch.float32, torch.int32):
        tensor = drawn((LARGE,), dtype, rank, 31)
        dist.all_reduce(tensor, group=group)
        found[f"all_reduce {dtype} large"] = digest(tensor)
    return found


def together(rank: int, size: int, group: Any) -> dict[str, str]:
    """Coalesced forms, several calls on their way at once, and barriers between them."""
    tensors = [drawn((count,), torch.float32, rank, 35) for count in (5, 4000, 90_000)]
    dist.all_reduce_coalesced(tensors, group=group)
    with distributed_c10d._coalescing_manager(group):
        for count in (5, 6000):
            whole = torch.empty(size * count)
            dist.all_gather_into_tensor(whole, drawn((count,), torch.float32, rank, 36), group)
            tensors.append(whole)
    dist.barrier(group)
    with distributed_c10d._coalescing_manager(group):
        for count in (5, 6000):
            own = torch.empty(count)
            dist.reduce_scatter_tensor(own, torch.ones(size * count), group=group)
            tensors.append(own)
    later = [drawn((30_000,), torch.float16, rank, 37 + n) for n in range(20)]
    work = [dist.all_reduce(each, group=group, async_op=True) for each in later]
    work.append(dist.barrier(group, async_op=True))
    for each in work:
        each.wait()
    return {"together": digest(*tensors, *later)}


def are_right(rank: int, size: int) -> list[bool]:
    """Return whether sums of ascending numbers are right: small, of one lane, and of several."""
    right = []
    for count in (10, 70_000, 3_000_001):
        tensor = torch.arange(count, dtype=torch.float32) + rank
        dist.all_reduce(tensor)
        expected = size * torch.arange(count, dtype=torch.float64) + size * (size - 1) // 2
        right.append(torch.equal(tensor, expected.float()))
    return right
