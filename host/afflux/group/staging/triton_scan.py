"""The scan of a tensor's blocks on a GPU, in Triton: each byte is read once, by wide loads.

To be imported only where it is used: torch's wheels for CUDA bring Triton, those for the CPU do
not. It is compiled when it is first used, once for each size of integers, which takes a second.

Tested: `tests/host/test_triton_scan.py` in its interpreter, `tests/gpu/block_scan.py` on a GPU.
"""

import torch
import triton
import triton.language as tl

__all__ = ["scan"]

_TOGETHER = 4096
"""Integers that a program reads: 32 for each thread of four warps."""


# Not one kernel for each kind of count: of 1, of multiples of 16, of others.
@triton.jit(do_not_specialize=["count"])
def _any_bit(words, flags, count, WIDTH: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    # In 64 bits: a tensor may have more than 2**31 words.
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = rows < count
    places = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    # The mask is the same for a whole row, so loads stay wide.
    bits = tl.load(words + places, mask=there[:, None], other=0)
    # No arithmetic with elements: the interpreter's bfloat16 is wrong, and -0 equals 0.
    found = tl.max((bits != 0).to(tl.int32), 1)
    tl.store(flags + rows, found.to(tl.int8), mask=there)


def scan(rows: torch.Tensor, flags: torch.Tensor) -> None:
    """Scan; see `afflux.group.staging.blocks.Scan`.

    Raises:
        Exception: As Triton raises where it cannot compile.
    """
    count, width = rows.shape
    together = _TOGETHER // width
    grid = (triton.cdiv(count, together),)
    _any_bit[grid](rows, flags.view(torch.int8), count, WIDTH=width, ROWS=together)
