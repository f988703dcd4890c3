"""Cycles from the last beat of a round's last contribution to the first beat of its first result.

The engine is otherwise idle, so the result waits for nothing.
"""

from afflux.commands.bench.registry import Bench, Row
from afflux_sim.rtl.stimulus import NOT_DRAINED
from benchmarks.gateware.closed_loop import ClosedLoop
from benchmarks.gateware.engines import ENGINES, MeasuredEngine
from benchmarks.gateware.traffic import DenseTraffic
from benchmarks.report.columns import aligned

__all__ = ["BENCH", "NAME", "measure"]

NAME = "latency"
_WORKERS = (2, 4, 8, 16, 32, 64)
_BLOCKS = (0, 1, 2, 4, 5, 8, 12, 16)
_TURNS = 4
_LONGEST_CYCLES = 10_000


def run(short: bool) -> list[Row]:
    """Measure every width, number of workers and size."""
    return [
        measure(measured, workers, blocks)
        for measured in ENGINES
        for workers in (_WORKERS[:1] if short else _WORKERS)
        for blocks in (_BLOCKS[:2] if short else _BLOCKS)
    ]


def measure(measured: MeasuredEngine, workers: int, blocks: int) -> Row:
    """Measure one row. The frame arrives at both phases of the engine's toggle."""
    engine = measured.engine
    loop = ClosedLoop(
        engine,
        bus_bits=measured.bus_bits,
        clock_hz=measured.clock_hz,
        workers=workers,
        lanes=measured.parameters.lanes,
        slots=1,
        traffic=DenseTraffic(workers, [blocks]),
    )
    found = []
    for turn in range(_TURNS):
        frames = [loop.frame(worker, 0, turn) for worker in range(workers)]
        engine.play(frames[:-1])
        if engine.cycles % 2 == turn % 2:
            engine.run(1)
        engine.play(frames[-1:], NOT_DRAINED)
        before = engine.statistics()
        while engine.statistics().beats_out == before.beats_out:
            engine.run(1)
            if engine.cycles - before.cycles > _LONGEST_CYCLES:
                raise RuntimeError(f"no result after {_LONGEST_CYCLES} cycles")
        found.append(engine.cycles - before.cycles)
        if len(engine.play([])) != workers:
            raise RuntimeError("the number of results is not that of the workers")
    return {
        "bench": NAME,
        "bus_bits": measured.bus_bits,
        "workers": workers,
        "blocks": blocks,
        "clock_mhz": measured.clock_hz / 1e6,
        "latency_cycles": min(found),
        "latency_cycles_max": max(found),
        "latency_ns": min(found) / measured.clock_hz * 1e9,
    }


def show(rows: list[Row]) -> str:
    """Show one line for each row."""
    header = ["bus", "workers", "blocks", "cycles", "at the other phase", "ns"]
    cells = [
        [
            str(row["bus_bits"]),
            str(row["workers"]),
            str(row["blocks"]),
            str(row["latency_cycles"]),
            str(row["latency_cycles_max"]),
            f"{row['latency_ns']:.0f}",
        ]
        for row in rows
    ]
    return aligned("last beat of the last contribution to first beat of a result", header, cells)


BENCH = Bench(NAME, run, show)
