"""How far all-reduced sums are from exact ones: Afflux's and Gloo's, and other systems' arithmetic.

Afflux and Gloo are called, as users call them. The others need hardware that is not here: their
orders and formats are written down in `MODELS`, and say nothing of what else they do.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from afflux.commands.bench.registry import Bench, Row
from afflux.demo.digits import build_network, training
from afflux.torchrun import end_with_parent, run_module
from afflux_sim.golden.rounding import FORMATS
from afflux_sim.golden.sums import add, bits_of_number, number_of_bits
from benchmarks.report.columns import aligned

__all__ = ["BENCH", "MODELS", "main"]

NAME = "accuracy"
_RANKS = 8
_BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}

_Parts = Sequence[torch.Tensor]


def _in_turn(parts: _Parts) -> torch.Tensor:
    """Add one after the other; each sum is rounded."""
    total = parts[0].clone()
    for each in parts[1:]:
        total = total + each
    return total


def _ring(parts: _Parts) -> torch.Tensor:
    """Add each piece from rank to rank, beginning behind the one that ends with it."""
    pieces = zip(*(each.chunk(len(parts)) for each in parts), strict=True)
    return torch.cat(
        [_in_turn([*piece[at + 1 :], *piece[: at + 1]]) for at, piece in enumerate(pieces)]
    )


def _tree(parts: _Parts) -> torch.Tensor:
    """Add pairs, and pairs of pairs."""
    half = len(parts) // 2
    return parts[0] if not half else _tree(parts[:half]) + _tree(parts[half:])


def _in_switch(parts: _Parts) -> torch.Tensor:
    """Add in float32, round once to the type: NVLS as PTX has it, `multimem…acc::f32`."""
    return _in_turn([each.float() for each in parts]).to(parts[0].dtype)


def _switchml(parts: _Parts) -> torch.Tensor:
    """Add 32-bit integers, of which a block's are in units that its largest element fits."""
    block, ranks = 64, len(parts)
    count = parts[0].numel()
    padded = [torch.nn.functional.pad(each, (0, -count % block)).double() for each in parts]
    blocks = [each.view(-1, block) for each in padded]
    largest = torch.stack(blocks).abs().amax(dim=(0, 2))
    power = torch.where(largest > 0, torch.frexp(largest)[1].double(), torch.zeros_like(largest))
    factor = ((2.0**31 - ranks) / ranks / 2**power).unsqueeze(1)
    total = sum(torch.round(each * factor) for each in blocks) / factor
    return total.reshape(-1)[:count].to(parts[0].dtype)


MODELS: dict[str, Callable[[_Parts], torch.Tensor]] = {
    "NCCL, ring": _ring,
    "NCCL, tree": _tree,
    "NVLS": _in_switch,
    "SwitchML": _switchml,
}


def _gradients(rank: int) -> torch.Tensor:
    """Return a rank's gradient of the digits network, after the same 30 steps at every rank."""
    images, labels = training()
    network = build_network(7)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(31):
        at = 32 * (step + (rank if step == 30 else 0))
        optimiser.zero_grad()
        chosen = slice(at, at + 32)
        torch.nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
        if step < 30:
            optimiser.step()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


def _data(rank: int) -> dict[str, torch.Tensor]:
    gradients = _gradients(rank)
    cancelled = {0: 1e9, 1: 1.0, 2: -1e9}.get(rank, 0.0)
    return {
        "float32": gradients,
        "bfloat16": gradients.bfloat16(),
        # The result that is shown is that of the last element.
        "beside": torch.tensor([1e10, *[1e-3] * 63]),
        "cancelled": torch.tensor([cancelled]),
    }


def _exact(parts: _Parts) -> torch.Tensor:
    """Return the sums of rationals, rounded once."""
    dtype = parts[0].dtype
    form = FORMATS[str(dtype).removeprefix("torch.")]
    mask = 2 * form.sign - 1
    columns = zip(*(each.view(_BITS[dtype]).tolist() for each in parts), strict=True)
    bits = [
        bits_of_number(add([number_of_bits(x & mask, form) for x in column]), form)
        for column in columns
    ]
    return torch.tensor(bits, dtype=torch.int64).to(_BITS[dtype]).view(dtype)


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """Return integers of which neighbours are those of neighbouring numbers; both zeros are 0."""
    bits = tensor.view(_BITS[tensor.dtype]).long()
    magnitude = bits & torch.iinfo(_BITS[tensor.dtype]).max
    return torch.where(bits < 0, -magnitude, magnitude)


def _rows(system: str, results: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> Row:
    row: Row = {"bench": NAME, "system": system, "ranks": _RANKS}
    for name in ("float32", "bfloat16"):
        away = (_places(results[name]) - _places(exact[name])).abs()
        row[f"{name}_wrong"] = float((away > 0).double().mean())
        row[f"{name}_units"] = int(away.max())
    for name in ("beside", "cancelled"):
        row[name] = float(results[name][-1])
    row["elements"] = exact["float32"].numel()
    return row


def run(short: bool) -> list[Row]:
    """Sum all data by all systems; `short` is no shorter, as it takes seconds."""
    own = {key: value for key, value in os.environ.items() if key.startswith("AFFLUX_")}
    written, _ = run_module("benchmarks.training.accuracy", _RANKS, [], own)
    rows: list[Row] = written[0]
    return rows


def show(rows: list[Row]) -> str:
    """Show a line for each system."""
    header = ["system", "float32 wrong", "units", "bfloat16 wrong", "units", "0.008", "1"]
    cells = [
        [
            row["system"],
            f"{row['float32_wrong']:.2%}",
            f"{row['float32_units']:,}",
            f"{row['bfloat16_wrong']:.2%}",
            f"{row['bfloat16_units']:,}",
            f"{row['beside']:.3g}",
            f"{row['cancelled']:g}",
        ]
        for row in rows
    ]
    return aligned("all_reduce sum against exact sums", header, cells)


BENCH = Bench(NAME, run, show)


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rank = dist.get_rank()
    mine = _data(rank)
    called = {}
    for name, group in {"Afflux": dist.new_group(backend="afflux"), "Gloo": None}.items():
        called[name] = {key: each.clone() for key, each in mine.items()}
        for each in called[name].values():
            dist.all_reduce(each, group=group)
    rows = []
    if rank == 0:
        parts = [_data(each) for each in range(_RANKS)]
        of_all = {key: [each[key] for each in parts] for key in mine}
        exact = {key: _exact(each) for key, each in of_all.items()}
        for name, model in MODELS.items():
            called[name] = {key: model(each) for key, each in of_all.items()}
        rows = [_rows(name, results, exact) for name, results in called.items()]
    dist.barrier()
    path = arguments.folder / f"rank{rank}.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    import afflux  # noqa: F401 - registers the backend

    sys.exit(main())
