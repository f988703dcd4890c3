"""One rank of two, in an environment that has a wheel and nothing of the checkout: they sum.

`torchrun trial.py ENGINE`, with AFFLUX_AGGREGATOR; the sums must be made by this kind of engine.
"""

import sys

import torch
import torch.distributed as dist

import afflux

ELEMENTS = 100_000


def main(engine: str) -> None:
    """Sum floats and integers, and compare every element."""
    assert afflux.__file__.startswith(sys.prefix), f"{afflux.__file__} is not the wheel's"
    dist.init_process_group("afflux")
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.int32):
        one = torch.arange(ELEMENTS, dtype=dtype) % 64
        whole = one * (rank + 1)
        dist.all_reduce(whole)
        assert torch.equal(whole, one * (size * (size + 1) // 2)), dtype
    counts = afflux.statistics()
    assert counts["engine"] == engine, counts
    assert counts["operations_engine"] >= 2 and counts["operations_gloo"] == 0, counts
    dist.destroy_process_group()
    if rank == 0:
        print(f"{engine}: two sums of {ELEMENTS:,} elements are right")


if __name__ == "__main__":
    main(sys.argv[1])
