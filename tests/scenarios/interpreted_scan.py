"""`TRITON_INTERPRET=1 python -m tests.scenarios.interpreted_scan`: Triton's scan, without a GPU.

It prints the tensors of which the kernel, interpreted on the CPU, finds other blocks than the scan
in C++, and ends with their number. Triton settles when it is imported whether it interprets, hence
a process of its own.
"""

import sys

import torch

from afflux.group.call.tensors import ENGINE_DTYPES, elements_of
from afflux.group.staging import blocks
from afflux.group.staging.blocks import Blocks, agrees
from afflux.group.staging.triton_scan import scan
from afflux_drivers import _native

__all__ = ["main"]


def drawn(dtype: torch.dtype, count: int) -> torch.Tensor:
    """Return a tensor with blocks of one bit, at each place of a block, and of zeros."""
    size = dtype.itemsize
    kinds = {2: torch.int16, 4: torch.int32}
    bits = torch.zeros(count, dtype=kinds[size])
    width = 256 // size
    generator = torch.Generator().manual_seed(size)
    for block in range(0, count // width, 3):
        place = block * width + int(torch.randint(width, (1,), generator=generator))
        # A sign alone is -0; others are NaN, infinite, and subnormal.
        bits[place] = [-(1 << 8 * size - 1), -1, 0x7F80 << 8 * (size - 2), 1][block // 3 % 4]
    return bits.view(dtype)


def main() -> int:
    """Return the number of tensors whose blocks are not found."""
    blocks._scan_on = lambda _device: scan  # type: ignore[assignment]
    wrong = [] if agrees(scan, torch.device("cpu")) else ["blocks of one bit"]
    for dtype, number in ENGINE_DTYPES.items():
        # More blocks than a program has, and not at the beginning of memory.
        width = 256 // dtype.itemsize
        tensor = drawn(dtype, 70 * width + 3)[3:]
        found = Blocks(tensor).present()
        cpp = _native.scan_blocks(int(number), elements_of(tensor))
        if found.tolist() != [each > 0 for each in cpp] or not 0 < int(found.sum()) < 70:
            wrong.append(str(dtype))
    print(f"wrong: {wrong}")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
