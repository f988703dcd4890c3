"""What a group does: hooks see each call, and `afflux.statistics` counts all of them.

    torchrun --nproc-per-node 2 examples/read_statistics.py

prints

    all_reduce sum float32 (1000,): by engine, 4000 bytes, … ms
    all_reduce max int64 (3,): by engine, 24 bytes, … ms
    gather float32 (8,) root 0: by gloo, 64 bytes, … ms
    engine: shm, because all ranks share it
    operations: 2 by the engine, 1 by Gloo
"""

import torch
import torch.distributed as dist

import afflux
from afflux.observe.observation import Observation

dist.init_process_group("afflux")
rank, size = dist.get_rank(), dist.get_world_size()


def show(call: Observation) -> None:
    """Print a call that is over."""
    if rank == 0:
        took_ms = (call.ended_ns - call.started_ns) / 1e6
        print(f"{call.text}: by {call.way}, {call.bytes} bytes, {took_ms:.1f} ms")


# A context manager, too: calls after it are not watched.
with afflux.register_hook(after=show):
    dist.all_reduce(torch.ones(1000))
    dist.all_reduce(torch.tensor([1, 2, 3]), dist.ReduceOp.MAX)
    parts = [torch.empty(8) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.ones(8), parts)

found = afflux.statistics()
if rank == 0:
    print(f"engine: {found['engine']}, because {found['topology_reason']}")
    engine, gloo = found["operations_engine"], found["operations_gloo"]
    print(f"operations: {engine} by the engine, {gloo} by Gloo")
dist.destroy_process_group()
