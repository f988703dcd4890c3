"""Beats that the engine takes and sends in each cycle, as long as workers offer them.

The workers keep to the protocol: none sends a round before it has the last one's result. So a rate
of 1 in and out is what the engine sustains, not what its buffers swallow.
"""

import math
from collections.abc import Sequence
from typing import Any

from afflux.commands.bench.registry import Bench, Row
from afflux_drivers.aggregator.jobs import read_counters
from afflux_hdl.contract import registers, wire
from benchmarks.gateware.closed_loop import ClosedLoop, Order, Passed
from benchmarks.gateware.engines import ENGINES, MeasuredEngine
from benchmarks.gateware.traffic import DenseTraffic
from benchmarks.report.columns import aligned

__all__ = ["BENCH", "MIX", "NAME", "measure"]

NAME = "line_rate"
MIX = "mix"

_WORKERS = (2, 4, 8, 16, 32, 64)
_SIZES: dict[str, tuple[int, ...]] = {
    "0": (0,),
    "1": (1,),
    "5": (5,),
    "16": (16,),
    MIX: tuple(range(wire.LANES_MAX + 1)),
}
_PORT_SIZES = ("5", "16")
_PORT_WORKERS = (4, 16, 64)
_WINDOW_CYCLES = 400
"""Cycles of frames that a window holds beyond three slots: more than the latency of any result."""
_CYCLES_LEAST = 20_000

_HARMLESS = {"frames_in", "accepted", "joins", "blocks_accepted", "rounds", "frames_out"}
_HARMLESS |= {"bytes_in", "bytes_out", "parent_results"}


def run(short: bool) -> list[Row]:
    """Measure every width, number of workers, size and order."""
    rows = []
    for measured in ENGINES:
        workers: Sequence[int] = (2, 64) if short else _WORKERS
        sizes = ["0", "5"] if short else list(_SIZES)
        if short and measured.bus_bits != 512:
            workers = (4,)
        for n in workers:
            for size in sizes:
                rows += [measure(measured, n, size, order) for order in Order]
                rows.append(measure(measured, n, size, Order.BACK_TO_BACK, multicast=True))
        for n in workers[-1:] if short else _PORT_WORKERS:
            for size in _PORT_SIZES[:1] if short else _PORT_SIZES:
                rows.append(measure(measured, n, size, Order.BACK_TO_BACK, port=True))
        for n in (2,) if short else (2, 8, 64):
            for size in ("0",) if short else ("0", "16"):
                rows.append(measure(measured, n, size, Order.BACK_TO_BACK, copies=2))
    return rows


def measure(
    measured: MeasuredEngine,
    workers: int,
    size: str,
    order: Order,
    *,
    multicast: bool = False,
    port: bool = False,
    copies: int = 1,
) -> Row:
    """Measure one row.

    Args:
        measured: The engine.
        workers: N.
        size: Blocks of a packet, or "mix".
        order: In which order packets that may be sent are sent.
        multicast: One result for all workers.
        port: Frames come as from the engine's port, not in every cycle.
        copies: How many times each contribution is sent.
    """
    sizes = _SIZES[size]
    p = measured.parameters
    beats = 2 * p.header_beats + sum(sizes) / len(sizes) * p.block_beats
    slots = 4 + math.ceil(_WINDOW_CYCLES / (workers * beats))
    # More if some rounds take longer than others.
    slots *= (2 if order is Order.RANDOM else 1) * (3 if size == MIX else 1)
    slots = min(slots, p.slots)
    loop = ClosedLoop(
        measured.engine,
        bus_bits=measured.bus_bits,
        clock_hz=measured.clock_hz,
        workers=workers,
        lanes=p.lanes,
        slots=slots,
        traffic=DenseTraffic(workers, sizes),
        order=order,
        multicast=multicast,
        port_bits_per_s=measured.port_bits_per_s if port else None,
        copies=copies,
    )
    before = read_counters(measured.engine)
    sweep = copies * slots * workers
    # Until results come as fast as contributions leave.
    loop.run((4 if order is Order.RANDOM else 2) * sweep)
    start = loop.passed()
    loop.run(sweep * math.ceil(_CYCLES_LEAST / beats / sweep))
    passed = loop.passed(start)
    measured.engine.play([])
    after = read_counters(measured.engine)
    row: Row = {
        "bench": NAME,
        "bus_bits": measured.bus_bits,
        "workers": workers,
        "blocks": size,
        "order": order.value,
        "results": "multicast" if multicast else "unicast",
        "traffic": "duplicates" if copies > 1 else "port" if port else "full",
        "slots": slots,
        "clock_mhz": measured.clock_hz / 1e6,
        **_rates(passed, measured),
    }
    if port:
        row["port_gbps"] = measured.port_bits_per_s / 1e9
        row["payload_share_in"] = row["payload_gbps"] / row["port_gbps"]
        row["payload_share_out"] = row["payload_out_gbps"] / row["port_gbps"]
    drops = {
        counter.name: after[counter.name] - before[counter.name]
        for counter in registers.COUNTERS
        if counter.name not in _HARMLESS and after[counter.name] != before[counter.name]
    }
    # Only dropped frames: `drops` also counts dropped answers.
    row["dropped"] = sum(drops.get(each.name, 0) for each in registers.FRAME_COUNTERS)
    row |= {f"counter_{name}": count for name, count in drops.items()}
    return row


def _rates(passed: Passed, measured: MeasuredEngine) -> dict[str, Any]:
    seconds = passed.cycles / measured.clock_hz
    bits = 8 * wire.BLOCK_BYTES
    return {
        "cycles": passed.cycles,
        "beats_per_cycle": passed.beats_in / passed.cycles,
        "beats_out_per_cycle": passed.beats_out / passed.cycles,
        "receive_stalls": passed.receive_stalls,
        "idle_cycles": passed.idle_cycles,
        "payload_gbps": passed.blocks_in * bits / seconds / 1e9,
        "payload_out_gbps": passed.blocks_out * bits / seconds / 1e9,
        "ingested_elements_per_s": passed.blocks_in * wire.BLOCK_ELEMENTS / seconds,
        "reduced_elements_per_s": passed.blocks_reduced * wire.BLOCK_ELEMENTS / seconds,
        "rounds_per_s": passed.rounds / seconds,
    }


def show(rows: list[Row]) -> str:
    """Show one line for each row."""
    header = ["bus", "workers", "blocks", "traffic", "results", "order", "beats in", "out"]
    header += ["stalls", "payload in (Gbit/s)", "out", "ingested (G el/s)", "reduced", "dropped"]
    cells = [
        [
            str(row["bus_bits"]),
            str(row["workers"]),
            row["blocks"],
            row["traffic"],
            row["results"],
            row["order"],
            f"{row['beats_per_cycle']:.3f}",
            f"{row['beats_out_per_cycle']:.3f}",
            str(row["receive_stalls"]),
            f"{row['payload_gbps']:.2f}",
            f"{row['payload_out_gbps']:.2f}",
            f"{row['ingested_elements_per_s'] / 1e9:.3f}",
            f"{row['reduced_elements_per_s'] / 1e9:.3f}",
            str(row["dropped"]),
        ]
        for row in rows
    ]
    return aligned("the engine at line rate, in simulation", header, cells)


BENCH = Bench(NAME, run, show)
