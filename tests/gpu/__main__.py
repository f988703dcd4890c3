"""`python -m tests.gpu`: tensors on CUDA through Afflux, two ranks on one GPU.

It runs what `tests/host/test_staged.py` and `test_present_blocks.py` run on the CPU, and the scan
of blocks beside that in C++. Then it measures an all-reduce beside Gloo's way for CUDA and beside
the copies alone, and with few blocks that are not zeros. It needs torch with CUDA, numpy, and
nothing else. Without a GPU it says so, and ends with 0; otherwise with 1 if anything was wrong.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.multiprocessing.spawn import ProcessExitedException, spawn

import afflux  # noqa: F401 - registers the backend
from tests.gpu import block_scan
from tests.scenarios import staged

__all__ = ["main"]

SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20, 100 << 20, 256 << 20)
"""Bytes of an all-reduce."""


def captured(_rank: int, _size: int, device: str) -> list[str]:
    """Return what is wrong with a call while a graph is captured, which is refused."""
    ones, text = torch.ones(3, device=device), ""
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
        ones.add_(1)
        try:
            dist.all_reduce(ones)
        except ValueError as error:
            text = str(error)
    dist.all_reduce(ones)
    is_right = "captures a graph" in text and ones.tolist() == [dist.get_world_size()] * 3
    return [] if is_right else [f"{text!r}, then {ones.tolist()}"]


SCENARIOS = {
    "collectives": staged.all_collectives,
    "pieces": staged.in_pieces,
    "scans": block_scan.scans_are_right,
    "blocks": staged.by_blocks,
    "blocks, by the calls before": staged.looked_at,
    "ways to wait": staged.ways_to_wait,
    "DDP": staged.replicated,
    "FSDP2": staged.sharded,
    "schemes": staged.with_schemes,
    "transfers": staged.sent,
    "a graph": captured,
}


def seconds_of(call: Any, times: int = 5) -> float:
    """Return the least time of a call, of which a device may still carry out a part."""
    found = []
    for _ in range(times + 1):
        torch.cuda.synchronize()
        dist.barrier()
        start = time.monotonic()
        call()
        torch.cuda.synchronize()
        found.append(time.monotonic() - start)
    return min(found[1:])


def measure(rank: int) -> None:
    """Print the times of an all-reduce by size."""
    ours = dist.new_group(backend="cpu:afflux,cuda:afflux")
    gloo = dist.new_group(backend="gloo")
    if rank == 0:
        names = "bytes", "afflux, ms", "gloo, ms", "copies, ms", "gloo/afflux", "copies/afflux"
        print(" ".join(f"{each:>13}" for each in names))
    for size in SIZES:
        tensor = torch.ones(size // 4, device="cuda")
        host = torch.empty(size // 4, pin_memory=True)

        def copies(tensor: torch.Tensor = tensor, host: torch.Tensor = host) -> None:
            host.copy_(tensor, non_blocking=True)
            tensor.copy_(host, non_blocking=True)

        def by(group: Any, tensor: torch.Tensor = tensor) -> None:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)

        times = [seconds_of(lambda: by(ours)), seconds_of(lambda: by(gloo)), seconds_of(copies)]
        if rank == 0:
            shown = [f"{size:,}", *(f"{1e3 * each:.3f}" for each in times)]
            shown += [f"{each / times[0]:.2f}" for each in times[1:]]
            print(" ".join(f"{each:>13}" for each in shown), flush=True)


def run(rank: int, size: int, store: str) -> None:
    """Run all at one rank."""
    torch.cuda.set_device(0)
    dist.init_process_group(
        "afflux",
        store=FileStore(store, size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    wrong: dict[str, Any] = {}
    for name, scenario in SCENARIOS.items():
        found = scenario(rank, size, "cuda")
        everywhere: list[Any] = [None] * size
        dist.all_gather_object(everywhere, found)
        wrong |= {name: everywhere} if any(everywhere) else {}
        if rank == 0:
            print(f"{name}: {'right' if not any(everywhere) else everywhere}", flush=True)
    measure(rank)
    block_scan.measure_scans(rank)
    block_scan.measure_sums(rank)
    dist.destroy_process_group()
    if wrong:
        sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="(%(default)s)")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(f"skipped: torch {torch.__version__} sees no GPU")
        return 0
    print(
        f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {options.ranks} ranks on it"
    )
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        try:
            spawn(run, (options.ranks, store), options.ranks)
        except ProcessExitedException:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
