"""The error of a sum against float64, beside the error of Gloo's float32 sum of the same data.

Fixed point within a block is relative to the block's largest element: better than float32 where the
elements of a block are of similar size, worse where one dwarfs the others. Both are shown.
"""

import argparse
import json
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from afflux.commands.bench.registry import Bench, Row
from afflux.demo.digits import build_network, training
from afflux.torchrun import end_with_parent, run_module
from benchmarks.report.columns import aligned

__all__ = ["BENCH", "main"]

NAME = "accuracy"
_WORKERS = [2, 4, 8]
_BLOCK = 64


def run(short: bool) -> list[Row]:
    """Measure all kinds of data at all numbers of workers, through the software engine."""
    workers = _WORKERS[:1] if short else _WORKERS
    count = 6_400 if short else 256_000
    arguments = ["--count", str(count), "--workers", *map(str, workers)]
    environment = {"AFFLUX_AGGREGATOR": "soft://"}
    written, _ = run_module("benchmarks.training.accuracy", max(workers), arguments, environment)
    return [{"bench": NAME, **row} for row in written[0]]


def show(rows: list[Row]) -> str:
    """Show errors and their ratios; below 1 is better than Gloo."""
    header = ["data", "workers", "RMS error", "of Gloo", "ratio", "max error", "of Gloo", "ratio"]
    header += ["RMS ratio, smaller half", "elements no worse"]
    cells = [
        [
            row["data"],
            str(row["workers"]),
            f"{row['rms_error']:.3g}",
            f"{row['rms_error_gloo']:.3g}",
            f"{row['rms_ratio']:.3g}",
            f"{row['max_error']:.3g}",
            f"{row['max_error_gloo']:.3g}",
            f"{row['max_ratio']:.3g}",
            f"{row['rms_ratio_smaller_half']:.3g}",
            f"{row['share_no_worse']:.1%}",
        ]
        for row in rows
    ]
    return aligned("all_reduce sum float32 against a float64 sum", header, cells)


BENCH = Bench(NAME, run, show)


def _gradients(rank: int, _count: int) -> torch.Tensor:
    """Return a rank's gradient of the digits network, after the same 30 steps at every rank."""
    images, labels = training()
    network = build_network(7)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(30):
        chosen = slice(32 * step, 32 * step + 32)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
        optimiser.step()
    chosen = slice(32 * (30 + rank), 32 * (30 + rank) + 32)
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
    return torch.cat(
        [each.grad.flatten() for each in network.parameters() if each.grad is not None]
    )


def _gaussian(rank: int, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(100 + rank))


def _log_normal(rank: int, count: int) -> torch.Tensor:
    """Draw with σ = 3, signs at random."""
    generator = torch.Generator().manual_seed(200 + rank)
    magnitudes = torch.exp(3 * torch.randn(count, generator=generator))
    return magnitudes * (2 * torch.randint(0, 2, (count,), generator=generator) - 1)


def _outliers(rank: int, count: int) -> torch.Tensor:
    """Draw Gaussian data, with one element of each block a million times as large."""
    data = _gaussian(300 + rank, count)
    data[torch.arange(0, count, _BLOCK) + rank % _BLOCK] *= 1e6
    return data


_DATA = {
    "gradients": _gradients,
    "gaussian": _gaussian,
    "log-normal, sigma 3": _log_normal,
    "one outlier a block": _outliers,
}


def _compare(
    name: str, workers: int, count: int, ours: dist.ProcessGroup, gloo: dist.ProcessGroup
) -> Row:
    rank = dist.get_rank()
    mine = _DATA[name](rank, count)
    results = []
    for group in (ours, gloo):
        tensor = mine.clone()
        dist.all_reduce(tensor, group=group)
        results.append(tensor.double().numpy())
    if rank != 0:
        return {}
    parts = [_DATA[name](each, count).double().numpy() for each in range(workers)]
    exact = np.sum(parts, axis=0)
    errors = [np.abs(result - exact) for result in results]
    rms = [float(np.sqrt(np.mean(error**2))) for error in errors]
    top = [float(error.max()) for error in errors]
    # An RMS over all does not show what a block's maximum costs its other elements.
    small = np.abs(exact) <= np.median(np.abs(exact))
    rms_small = [float(np.sqrt(np.mean(error[small] ** 2))) for error in errors]
    return {
        "data": name,
        "workers": workers,
        "elements": int(exact.size),
        "rms_error": rms[0],
        "rms_error_gloo": rms[1],
        "rms_ratio": rms[0] / rms[1],
        "max_error": top[0],
        "max_error_gloo": top[1],
        "max_ratio": top[0] / top[1],
        "rms_error_smaller_half": rms_small[0],
        "rms_error_smaller_half_gloo": rms_small[1],
        "rms_ratio_smaller_half": rms_small[0] / rms_small[1],
        "share_no_worse": float(np.mean(errors[0] <= errors[1])),
    }


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--workers", type=int, nargs="+", required=True)
    arguments = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rows = []
    for workers in arguments.workers:
        ranks = list(range(workers))
        ours = dist.new_group(ranks, backend="afflux")
        gloo = dist.new_group(ranks)
        if dist.get_rank() < workers:
            rows += [_compare(name, workers, arguments.count, ours, gloo) for name in _DATA]
        dist.barrier()
    path = arguments.folder / f"rank{dist.get_rank()}.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    import afflux  # noqa: F401 - registers the backend

    sys.exit(main())
