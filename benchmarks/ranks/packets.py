"""`python -m benchmarks.ranks.packets`: measure a worker's packets, into build/bench/host.json.

A tensor far larger than the caches goes through a worker's packets, on one core: exponents are
found, blocks go into packet buffers, and results come out of them. It is the code that a worker
runs, without headers and without a network. Bytes read and written are counted, and
processor time is taken, as for the memcpy of the tensor that alternates with it.
"""

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from afflux.commands.bench.registry import Row
from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire
from benchmarks.report.columns import aligned
from benchmarks.report.figures import merge_rows

__all__ = ["NAME", "main", "measure"]

NAME = "packets"
"""Value of its rows' "bench"."""

_SUM = Reduction.SUM.number
# Of the operation.
_RANKS = 4
# Packets that a worker has in flight.
_SLOTS = 64
_TORCH = {
    wire.Dtype.INT32: torch.int32,
    wire.Dtype.FLOAT32: torch.float32,
    wire.Dtype.FLOAT16: torch.float16,
    wire.Dtype.BFLOAT16: torch.bfloat16,
}


def measure(dtype: wire.Dtype, tensor_bytes: int, repeats: int) -> list[Row]:
    """Return the rows of one dtype: into packets, and into packets and back.

    Args:
        dtype: Type of the elements.
        tensor_bytes: Size of the tensor, rounded down to whole blocks.
        repeats: Alternating runs, of which medians are taken.
    """
    # torch's memory is aligned, as a training script's is.
    tensor = torch.empty(0, dtype=_TORCH[dtype])
    count = tensor_bytes // tensor.element_size() // wire.BLOCK_ELEMENTS * wire.BLOCK_ELEMENTS
    generator = torch.Generator().manual_seed(1)
    if dtype is wire.Dtype.INT32:
        tensor = torch.randint(-1000, 1000, (count,), generator=generator, dtype=torch.int32)
    else:
        tensor = torch.randn(count, generator=generator).to(_TORCH[dtype])
    elements, back = _storage(tensor), _storage(torch.zeros_like(tensor))
    into = 2 * elements.nbytes

    def copy() -> None:
        ctypes.memmove(back.ctypes.data, elements.ctypes.data, elements.nbytes)

    def walk(returns: bool) -> None:
        _native.walk_columns(elements, back, int(dtype), _SUM, _RANKS, _SLOTS, returns)

    works: dict[str, Callable[[], None]] = {
        "memcpy": copy,
        "into packets": lambda: walk(False),
        "and back": lambda: walk(True),
    }
    moved = {"memcpy": 2 * elements.nbytes, "into packets": into, "and back": 2 * into}
    times = _alternate(works, repeats)
    rows: list[Row] = []
    for what in ("into packets", "and back"):
        row: Row = {"bench": NAME, "what": what, "dtype": dtype.name.lower()}
        row |= {"instruction_set": _native.instruction_set(), "slots": _SLOTS}
        row |= {"bytes": elements.nbytes, "moved": moved[what]}
        ours, copies = times[what], times["memcpy"]
        ratios = [
            (moved[what] / own) / (moved["memcpy"] / other)
            for own, other in zip(ours, copies, strict=True)
        ]
        row |= {"packets_cpu_s": median(ours), "memcpy_cpu_s": median(copies)}
        row["cpu_ratio"] = median(ratios)
        rows.append(row)
    return rows


def _storage(tensor: torch.Tensor) -> NDArray[np.generic]:
    whole = tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor
    return whole.numpy()


def _alternate(works: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Return each work's seconds of processor time in each round, but for a first one.

    The works never wait, so that this is what the clock shows on an idle machine.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for round_number in range(repeats + 1):
        for name, work in works.items():
            start = time.thread_time()
            work()
            if round_number:
                times[name].append(time.thread_time() - start)
    return times


def table(rows: list[Row]) -> str:
    """Return rates and their share of memcpy's, for people."""
    header = ["what", "dtype", "GB/s", "of memcpy"]
    cells = [
        [
            row["what"],
            row["dtype"],
            f"{row['moved'] / row['packets_cpu_s'] / 1e9:.2f}",
            f"{row['cpu_ratio']:.2f}",
        ]
        for row in rows
    ]
    heading = (
        f"Packets, one core, {rows[0]['instruction_set']}: bytes read and written by processor time"
    )
    return aligned(heading, header, cells)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks.packets", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/bench/host.json"))
    parser.add_argument("--bytes", type=int, default=100_000_000, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=11, help="(%(default)s)")
    arguments = parser.parse_args(argv)
    rows: list[Row] = []
    for dtype in wire.Dtype:
        rows += measure(dtype, arguments.bytes, arguments.repeats)
    merge_rows(arguments.output, [NAME], rows)
    print(f"{table(rows)}\n\nwritten to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
