"""One rank of the demonstration's training; torchrun starts four of these.

Rank 0 prints a line of JSON for each epoch; every rank leaves its results in a folder.
"""

import argparse
import hashlib
import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux
from afflux.demo.digits import build_network, held_out, training
from afflux.torchrun import end_with_parent

__all__ = ["EPOCH_MARK", "main"]

EPOCH_MARK = "afflux-demo-epoch "
_SEED = 7
_BATCH = 32


def _weights(network: torch.nn.Module) -> np.ndarray:
    return torch.cat([each.detach().flatten() for each in network.parameters()]).numpy()


def _train(epochs: int, rank: int, size: int) -> tuple[torch.nn.Module, float, float]:
    """Return the network, its last mean loss and its accuracy on held-out images."""
    images, labels = training()
    test_images, test_labels = held_out()
    network = build_network(_SEED)
    model = DistributedDataParallel(network)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    mean_loss = accuracy = 0.0
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        # Whole batches only: every rank takes the same number of steps.
        steps = len(labels) // (_BATCH * size)
        total = torch.zeros(())
        for step in range(steps):
            begin = (step * size + rank) * _BATCH
            batch = order[begin : begin + _BATCH]
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimiser.step()
            total += loss.detach()
        total /= steps * size
        dist.all_reduce(total)
        mean_loss = float(total)
        with torch.no_grad():
            guesses = network(test_images).argmax(1)
        accuracy = float((guesses == test_labels).float().mean())
        if rank == 0:
            news = {"epoch": epoch + 1, "loss": mean_loss, "accuracy": accuracy}
            print(EPOCH_MARK + json.dumps(news), flush=True)
    return network, mean_loss, accuracy


def main() -> int:
    """Train and write `rank<r>.json` and, as rank 0, `weights.npy` into the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["afflux", "gloo"], required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group(arguments.backend, timeout=timedelta(seconds=120))
    rank, size = dist.get_rank(), dist.get_world_size()
    started = time.monotonic()
    network, loss, accuracy = _train(arguments.epochs, rank, size)
    results: dict[str, Any] = {
        "loss": loss,
        "accuracy": accuracy,
        "seconds": time.monotonic() - started,
        "sha256": hashlib.sha256(_weights(network).tobytes()).hexdigest(),
    }
    # Nobody starts another operation before all have read their counts.
    dist.barrier()
    if arguments.backend == "afflux":
        results["statistics"] = afflux.statistics()
        if rank == 0:
            results["counters"] = afflux.engine_counters()
            results["cycles"] = afflux.engine_description().get("cycles")
    (arguments.folder / f"rank{rank}.json").write_text(json.dumps(results), encoding="utf-8")
    if rank == 0:
        np.save(arguments.folder / "weights.npy", _weights(network))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
