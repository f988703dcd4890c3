"""One rank of another version of Afflux, or of this one: what its all-reduces take.

It runs as a file, with the Python of that version, and uses only what all versions have.
"""

import argparse
import json
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import afflux  # noqa: F401  (its import makes the backend known)

ROW_MARK = "row: "
"""Begins the line of a case, which rank 0 prints."""

_TIMEOUT = timedelta(seconds=120)
_EXACT = 16
"""Calls until the tensor has its first elements again: sums grow, and remain exact so far."""

_MANY = 400
"""Most calls between two looks at the clock."""


def _measure(
    name: str, size: int, group: dist.ProcessGroup, run_s: float
) -> tuple[float, float, int, int]:
    """Return seconds and processor seconds of a call, calls, and wrong elements.

    Args:
        name: Of the dtype.
        size: Bytes of the tensor.
        group: That of Afflux.
        run_s: Seconds of all calls.
    """
    dtype, ranks = getattr(torch, name), dist.get_world_size()
    numbers = torch.arange(size // dtype.itemsize) + 1
    # Few bits: exact in any type, and by any scheme.
    first = ((numbers + dist.get_rank()) % 7).to(dtype)
    tensor = first.clone()
    dist.all_reduce(tensor, group=group)
    wanted = torch.zeros_like(numbers)
    for rank in range(ranks):
        wanted += (numbers + rank) % 7
    wrong = int((tensor != wanted.to(dtype)).sum())
    began, calls, wall_s, cpu_s = time.perf_counter(), 0, list[float](), 0.0
    started = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    pace = torch.tensor([time.perf_counter() - started])
    dist.broadcast(pace, 0)
    # At least two, and so few that the clock is looked at.
    batch = min(_MANY, max(2, int(run_s / 4 / float(pace))))
    while True:
        # Rank 0's clock decides when it is over.
        over = torch.tensor([time.perf_counter() - began > run_s and len(wall_s) > 1])
        dist.broadcast(over, 0)
        if over:
            break
        tensor.copy_(first)
        dist.barrier()
        processor_s, started = time.process_time(), time.perf_counter()
        for number in range(batch):
            if number and number % _EXACT == 0:
                tensor.copy_(first)
            dist.all_reduce(tensor, group=group)
        wall_s.append((time.perf_counter() - started) / batch)
        cpu_s += time.process_time() - processor_s
        calls += batch
    totals = torch.tensor([statistics.median(wall_s), cpu_s / calls, wrong], dtype=torch.float64)
    dist.all_reduce(totals)
    return float(totals[0]) / ranks, float(totals[1]) / ranks, calls, int(totals[2])


def main() -> None:
    """Run the rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=json.loads, required=True)
    parser.add_argument("--run-s", type=float, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=_TIMEOUT)
    group = dist.new_group(backend="afflux", timeout=_TIMEOUT)
    assert group is not None
    for name, size in given.cases:
        row = _measure(name, size, group, given.run_s)
        if dist.get_rank() == 0:
            print(ROW_MARK + json.dumps(row), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
