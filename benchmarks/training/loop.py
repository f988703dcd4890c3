"""The whole path of a dense all-reduce: torch, UDP, an engine in the loop, and back.

Four processes on this machine. "per worker" is each rank's tensor divided by the time; beside it
algbw and busbw as nccl-tests define them (busbw = algbw · 2(n−1)/n counts what a ring would move,
so in-network aggregation may exceed a link's rate in it).
"""

import argparse
import json
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import afflux
from afflux.commands.bench.registry import Bench, Row
from afflux.torchrun import end_with_parent, run_module
from benchmarks.report.columns import aligned

__all__ = ["BENCH", "main"]

NAME = "loop"
_RANKS = 4
_WAYS = {"rtl": "rtl://?bus_bits=512", "soft": "soft://", "gloo": ""}


def run(short: bool) -> list[Row]:
    """Measure each engine and Gloo, one after the other."""
    sizes = [1] if short else [4, 16]
    rows: list[Row] = []
    for way, url in _WAYS.items():
        if short and way == "rtl":
            continue
        arguments = ["--backend", "afflux" if url else "gloo", "--repeats", "1" if short else "3"]
        arguments += ["--megabytes", *map(str, sizes)]
        environment = {"AFFLUX_AGGREGATOR": url} if url else {}
        written, _ = run_module("benchmarks.training.loop", _RANKS, arguments, environment)
        rows += [{"bench": NAME, "engine": way, "workers": _RANKS, **row} for row in written[0]]
    return rows


def show(rows: list[Row]) -> str:
    """Show the columns of nccl-tests, and the engine's cycles."""
    header = ["engine", "size (B)", "count", "time (us)", "per worker (MB/s)", "algbw (GB/s)"]
    header += ["busbw (GB/s)", "#wrong", "engine cycles/s", "again"]
    cells = [
        [
            row["engine"],
            str(row["bytes"]),
            str(row["bytes"] // 4),
            f"{row['seconds'] * 1e6:.0f}",
            f"{row['bytes'] / row['seconds'] / 1e6:.2f}",
            f"{row['bytes'] / row['seconds'] / 1e9:.4f}",
            f"{row['bytes'] / row['seconds'] / 1e9 * 2 * (_RANKS - 1) / _RANKS:.4f}",
            str(row["wrong"]),
            f"{row['cycles_per_s']:.0f}" if row.get("cycles_per_s") else "–",
            str(row.get("retransmissions", "–")),
        ]
        for row in rows
    ]
    return aligned(f"all_reduce sum float32, {_RANKS} ranks on one machine", header, cells)


BENCH = Bench(NAME, run, show)


def _measure(megabytes: int, repeats: int, with_engine: bool) -> Row:
    rank, size = dist.get_rank(), dist.get_world_size()
    count = megabytes * 1_000_000 // 4
    # Integers up to 100: sums are exact in float32, so any difference is an error.
    pattern = (torch.arange(count) % 100 + 1).float()
    want = pattern * (size * (size + 1) // 2)
    before = afflux.statistics() if with_engine else {}
    times, cycles, wrong = [], [], 0
    for _ in range(repeats):
        tensor = pattern * (rank + 1)
        dist.barrier()
        first = _cycles(with_engine)
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(tensor)
        seconds = torch.tensor([time.perf_counter() - started], dtype=torch.float64)
        dist.barrier()
        cycles.append(_cycles(with_engine) - first)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        times.append(seconds.item())
        wrong += int((tensor != want).sum())
    middle = statistics.median(times)
    row: Row = {"bytes": 4 * count, "seconds": middle, "seconds_all": times, "wrong": wrong}
    if with_engine:
        after = afflux.statistics()
        row["retransmissions"] = after["retransmissions"] - before["retransmissions"]
        row["lanes"], row["slots"] = after["lanes"], after["slots"]
        row["cycles"] = int(statistics.median(cycles))
        row["cycles_per_s"] = row["cycles"] / middle
    return row


def _cycles(with_engine: bool) -> int:
    if not with_engine or dist.get_rank() != 0:
        return 0
    return int(afflux.engine_description().get("cycles", 0))


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--megabytes", type=int, nargs="+", required=True)
    arguments = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend, timeout=timedelta(seconds=300))
    with_engine = arguments.backend == "afflux"
    _measure(1, 1, with_engine)
    rows = [_measure(size, arguments.repeats, with_engine) for size in arguments.megabytes]
    path = arguments.folder / f"rank{dist.get_rank()}.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
