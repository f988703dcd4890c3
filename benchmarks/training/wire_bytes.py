"""Bytes on the wire, relative to the dense tensor, by the share of blocks that are present.

Each worker has each block with the given probability, independently. Counted are whole Ethernet
frames with what a wire adds (preamble, check sequence and gap: 24 bytes); every contribution and
every result once. A real run may repeat some; the JSON has those too.
"""

import argparse
import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import afflux
from afflux.commands.bench.registry import Bench, Row
from afflux.torchrun import end_with_parent, run_module
from afflux_hdl.contract import wire
from benchmarks.report.columns import aligned

__all__ = ["BENCH", "main"]

NAME = "wire_bytes"
_WORKERS = [4, 8]
_DENSITIES = [1.0, 0.4, 0.1, 0.01]
_WIRE_OVERHEAD_BYTES = 24

_PREDICTED = {
    (4, 1.0): (1.038, None),
    (4, 0.1): (0.118, 0.363),
    (4, 0.01): (0.015, 0.047),
    (8, 1.0): (1.038, None),
    (8, 0.1): (0.128, 0.601),
    (8, 0.01): (0.016, 0.085),
}
"""Sent and received, as a model of the protocol predicted before the engine existed."""


def run(short: bool) -> list[Row]:
    """Measure all densities at all numbers of workers, through the software engine."""
    rows: list[Row] = []
    for workers in _WORKERS[:1] if short else _WORKERS:
        arguments = ["--blocks", str(2048 if short else 16384)]
        environment = {"AFFLUX_AGGREGATOR": "soft://"}
        written, _ = run_module("benchmarks.training.wire_bytes", workers, arguments, environment)
        rows += [{"bench": NAME, "workers": workers, **row} for row in written[0]]
    return rows


def show(rows: list[Row]) -> str:
    """Show measurements, the model's predictions, and the least that any scheme could do."""
    header = ["density", "workers", "sent", "model", "least", "received", "model", "least"]
    cells = []
    for row in rows:
        model = _PREDICTED.get((row["workers"], row["density"]), (None, None))
        cells.append(
            [
                f"{row['density']:g}",
                str(row["workers"]),
                f"{row['sent']:.3f}",
                "–" if model[0] is None else f"{model[0]:.3f}",
                f"{row['least_sent']:.3f}",
                f"{row['received']:.3f}",
                "–" if model[1] is None else f"{model[1]:.3f}",
                f"{row['least_received']:.3f}",
            ]
        )
    return aligned("bytes of a worker relative to its dense tensor", header, cells)


BENCH = Bench(NAME, run, show)


def _present(density: float, blocks: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.rand(blocks, generator=generator) < density


def _measure(density: float, blocks: int) -> Row:
    rank, size = dist.get_rank(), dist.get_world_size()
    present = _present(density, blocks, rank)
    tensor = (present.float()[:, None] * torch.ones(wire.BLOCK_ELEMENTS)).reshape(-1)
    dist.barrier()
    before = afflux.statistics()
    dist.all_reduce(tensor)
    after = afflux.statistics()
    everyone = torch.stack([_present(density, blocks, each) for each in range(size)])
    union = int(everyone.any(0).sum())
    assert torch.equal(tensor.reshape(blocks, -1)[:, 0], everyone.sum(0).float())
    moved = {
        name: after[name] - before[name]
        for name in (
            "blocks_sent",
            "rounds",
            "packets_sent",
            "packets_received",
            "frame_bytes_sent",
            "frame_bytes_received",
            "retransmissions",
        )
    }
    dense = blocks * wire.BLOCK_BYTES
    packet = wire.FRAME_BYTES_MIN + _WIRE_OVERHEAD_BYTES
    # One packet each way for each round; the fingerprint's block comes back as well.
    sent = moved["rounds"] * packet + moved["blocks_sent"] * wire.BLOCK_BYTES
    received = moved["rounds"] * packet + (union + 1) * wire.BLOCK_BYTES
    return {
        "density": density,
        "blocks": blocks,
        "lanes": after["lanes"],
        "slots": after["slots"],
        "rounds": moved["rounds"],
        "sent": sent / dense,
        "received": received / dense,
        "least_sent": int(present.sum()) / blocks,
        "least_received": union / blocks,
        "sent_with_repeats": (
            moved["frame_bytes_sent"] + _WIRE_OVERHEAD_BYTES * moved["packets_sent"]
        )
        / dense,
        "received_with_repeats": (
            moved["frame_bytes_received"] + _WIRE_OVERHEAD_BYTES * moved["packets_received"]
        )
        / dense,
        "retransmissions": moved["retransmissions"],
    }


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--blocks", type=int, required=True)
    arguments = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("afflux", timeout=timedelta(seconds=300))
    rows = [_measure(density, arguments.blocks) for density in _DENSITIES]
    path = arguments.folder / f"rank{dist.get_rank()}.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
