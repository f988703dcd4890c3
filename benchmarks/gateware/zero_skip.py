"""Cycles of an all-reduce whose zero blocks are not sent, beside the dense one and the ideal.

Scaled down from a tensor of 25 M elements: 390,625 blocks in 64 slots of 16 lanes are 1,024 columns
of 382 rows. Here an eighth of the columns is walked, 8 slots, from top to bottom: as many rows as
there, so that what a column's last rounds cost keeps its share.
"""

import math
from collections.abc import Sequence

from afflux.commands.bench.registry import Bench, Row
from afflux_hdl.contract import wire
from benchmarks.gateware.closed_loop import ClosedLoop
from benchmarks.gateware.engines import ENGINES, MeasuredEngine
from benchmarks.gateware.traffic import ColumnTraffic, Overlap, presence
from benchmarks.report.columns import aligned

__all__ = ["BENCH", "NAME", "measure"]

NAME = "zero_skip"
ELEMENTS = 25_000_000
_SLOTS_WHOLE = 64
_SLOTS = 8
_ROWS = math.ceil(ELEMENTS / wire.BLOCK_ELEMENTS / (_SLOTS_WHOLE * wire.LANES_MAX))
_ROWS_SHORT = 24
_WORKERS = (4, 8)
_DENSITIES = (1.0, 0.4, 0.1, 0.04, 0.01)
_OVERLAPS = (Overlap.RANDOM, Overlap.FULL, Overlap.NONE)


def run(short: bool) -> list[Row]:
    """Measure every density and overlap at 512 bits, and one column of them at 32."""
    rows = []
    ways = ["unicast", "multicast"]
    for measured in ENGINES:
        wide = measured.bus_bits == 512
        if short and not wide:
            continue
        for workers in _WORKERS if wide and not short else _WORKERS[:1]:
            for way in ways:
                rows += _group(measured, workers, way, short)
    return rows


def _group(measured: MeasuredEngine, workers: int, way: str, short: bool) -> list[Row]:
    """Measure all rows that are compared with the same dense tensor."""
    wide = measured.bus_bits == 512
    height = _ROWS_SHORT if short or not wide else _ROWS
    densities: Sequence[float] = (1.0, 0.1) if short or not wide else _DENSITIES
    overlaps = _OVERLAPS if wide else _OVERLAPS[:1]
    rows: list[Row] = []
    for density in densities:
        # All three are the same in a dense tensor.
        for overlap in overlaps if density < 1 else [Overlap.FULL]:
            row = measure(measured, workers, way, height, density, overlap)
            row["cycles_of_dense"] = row["cycles"] / (rows[0] if rows else row)["cycles"]
            rows.append(row)
    return rows


def measure(
    measured: MeasuredEngine, workers: int, way: str, height: int, density: float, overlap: str
) -> Row:
    """Simulate one all-reduce and check every result.

    Args:
        measured: The engine.
        workers: N.
        way: "unicast" or "multicast".
        height: Rows.
        density: Share of each worker's blocks that are not zero.
        overlap: How they relate.
    """
    present = presence(workers, _SLOTS, height, density, overlap)
    traffic = ColumnTraffic(present)
    loop = ClosedLoop(
        measured.engine,
        bus_bits=measured.bus_bits,
        clock_hz=measured.clock_hz,
        workers=workers,
        lanes=wire.LANES_MAX,
        slots=_SLOTS,
        traffic=traffic,
        multicast=way == "multicast",
    )
    start = loop.passed()
    loop.finish()
    measured.engine.play([])
    passed = loop.passed(start)
    if not traffic.complete:
        raise RuntimeError("a block has never been in a result")
    union = int(present.any(0).sum())
    beats = measured.parameters.block_beats
    ideal_in = int(present.sum()) * beats
    ideal_out = union * beats * (1 if way == "multicast" else workers)
    return {
        "bench": NAME,
        "bus_bits": measured.bus_bits,
        "workers": workers,
        "results": way,
        "density": density,
        "overlap": overlap,
        "columns": _SLOTS * wire.LANES_MAX,
        "rows": height,
        "columns_of_whole": _SLOTS / _SLOTS_WHOLE,
        "blocks_of_a_worker": int(present.sum()) / workers,
        "blocks_of_union": union,
        "rounds": passed.rounds,
        "cycles": passed.cycles,
        "cycles_ideal": max(ideal_in, ideal_out),
        "cycles_of_ideal": passed.cycles / max(ideal_in, ideal_out),
        "beats_per_cycle": passed.beats_in / passed.cycles,
        "beats_out_per_cycle": passed.beats_out / passed.cycles,
        "receive_stalls": passed.receive_stalls,
    }


def show(rows: list[Row]) -> str:
    """Show one line for each row."""
    header = ["bus", "workers", "results", "density", "overlap", "cycles", "of dense"]
    header += ["ideal", "of ideal", "beats in", "out", "stalls"]
    cells = [
        [
            str(row["bus_bits"]),
            str(row["workers"]),
            row["results"],
            f"{row['density']:g}",
            row["overlap"],
            str(row["cycles"]),
            f"{row['cycles_of_dense']:.4f}",
            str(row["cycles_ideal"]),
            f"{row['cycles_of_ideal']:.2f}",
            f"{row['beats_per_cycle']:.3f}",
            f"{row['beats_out_per_cycle']:.3f}",
            str(row["receive_stalls"]),
        ]
        for row in rows
    ]
    return aligned(f"zero blocks skipped, {_SLOTS} slots of 16 lanes", header, cells)


BENCH = Bench(NAME, run, show)
