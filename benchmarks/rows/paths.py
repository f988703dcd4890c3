"""Which way each gradient of a model takes: `torchrun --nproc-per-node 2 -m benchmarks.rows.paths`.

DistributedDataParallel over a model with a sparse embedding and dense layers, as Parallax has them.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import afflux

__all__ = ["main", "step"]

_ROWS, _WIDTH, _WORDS = 20_000, 64, 300


def step() -> dict[str, Any]:
    """Make two steps of training in the default group; return what the second one has taken.

    Returns:
        "sparse": by kind, as `afflux.statistics` has it; "calls" of the engine in the step, of
        which each sparse sum takes some; "bytes" of the model's gradients if all were dense.
    """
    torch.manual_seed(0)
    words = nn.EmbeddingBag(_ROWS, _WIDTH, sparse=True)
    layers = nn.Sequential(nn.Linear(_WIDTH, 128), nn.ReLU(), nn.Linear(128, 16))
    model = DistributedDataParallel(nn.Sequential(words, layers))
    source = torch.Generator().manual_seed(dist.get_rank())
    before = 0
    for _ in range(2):
        before = afflux.statistics()["operations_engine"]
        model.zero_grad()
        batch = torch.randint(_ROWS, (8, _WORDS // 8), generator=source)
        model(batch).square().mean().backward()
    if words.weight.grad is None or words.weight.grad.layout is not torch.sparse_coo:
        raise AssertionError("the embedding's gradient is not sparse")
    found = afflux.statistics()
    return {
        "sparse": found["sparse"],
        "calls": found["operations_engine"] - before,
        "bytes": sum(each.nbytes for each in model.parameters()),
    }


def main() -> int:
    """Print the ways that rank 0 has seen."""
    dist.init_process_group("afflux")
    found = step()
    if dist.get_rank() == 0:
        print(f"gradients, all dense: {found['bytes']} bytes; {found['calls']} sums in a step")
        for kind, values in found["sparse"].items():
            print(f"sparse: {kind}")
            for name, value in values.items():
                print(f"  {name}: {value}")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
