"""Plots of the gateware: `python -m benchmarks.gateware.plots FIGURES FOLDER`."""

import sys
from typing import Any

from afflux.commands.bench.registry import Row
from afflux_hdl.contract import wire
from benchmarks.gateware import latency, line_rate, zero_skip
from benchmarks.report.plots import Draw, main_of

__all__ = ["PLOTS", "main"]

_OVERHEAD_BYTES = 24
_STYLES = {"random": "-", "full": "--", "none": ":"}


def _frame_size(axes: Any, rows: list[Row]) -> None:
    """Draw payload against the size of frames, at 512 bits, beside what the port lets through."""
    rows = [row for row in rows if row["bus_bits"] == 512 and row["blocks"] != line_rate.MIX]
    full = [row for row in rows if row["traffic"] == "full" and row["results"] == "unicast"]
    workers = sorted({row["workers"] for row in full})
    bus = full[0]["bus_bits"] * full[0]["clock_mhz"] / 1e3
    sizes = [wire.frame_bytes(blocks) for blocks in range(wire.LANES_MAX + 1)]
    for rate, overhead, style, label in (
        (bus, 0, ":", f"what the bus of {bus:g} Gbit/s can carry"),
        (100, _OVERHEAD_BYTES, "--", "what a port of 100 Gbit/s can carry"),
    ):
        share = [rate * (size - wire.PAYLOAD_OFFSET) / (size + overhead) for size in sizes]
        axes.plot(sizes, share, style, color="grey", label=label)
    port = [row for row in rows if row["traffic"] == "port"]
    for measured, mark, label in (
        (full, "o", f"{workers[0]} to {workers[-1]} workers, a beat in every cycle"),
        (port, "x", "frames as from such a port"),
    ):
        axes.plot(
            [wire.frame_bytes(int(row["blocks"])) for row in measured],
            [min(row["payload_gbps"], row["payload_out_gbps"]) for row in measured],
            mark,
            label=label,
        )
    axes.set(xlabel="bytes of a frame", ylim=(0, None))
    axes.set_ylabel("payload in, and out at the same time (Gbit/s)")


def _latency(axes: Any, rows: list[Row]) -> None:
    """Draw cycles against blocks. The number of workers makes no difference."""
    for bus_bits in dict.fromkeys(row["bus_bits"] for row in rows):
        workers = min(row["workers"] for row in rows)
        of_bus = [row for row in rows if row["bus_bits"] == bus_bits and row["workers"] == workers]
        clock = of_bus[0]["clock_mhz"]
        axes.plot(
            [row["blocks"] for row in of_bus],
            [row["latency_cycles"] for row in of_bus],
            marker="o",
            label=f"{bus_bits} bits ({1000 / clock:g} ns a cycle)",
        )
    axes.set(xlabel="blocks of a packet", yscale="log")
    axes.set_ylabel("cycles, last beat in to first beat out")


def _zero_skip(axes: Any, rows: list[Row]) -> None:
    """Draw cycles relative to the dense tensor against density, at 512 bits."""
    rows = [row for row in rows if row["bus_bits"] == 512]
    workers = max(row["workers"] for row in rows)
    rows = [row for row in rows if row["workers"] == workers]
    for colour, way in enumerate(dict.fromkeys(row["results"] for row in rows)):
        dense = [row for row in rows if row["results"] == way and row["density"] == 1]
        for overlap, style in _STYLES.items():
            of_way = [r for r in rows if r["results"] == way and r["overlap"] == overlap]
            points = sorted({row["density"]: row for row in of_way + dense}.items())
            densities = [density for density, _ in points]
            axes.plot(
                densities,
                [row["cycles_of_dense"] for _, row in points],
                style,
                marker="o",
                color=f"C{colour}",
                label=f"{way}, overlap {overlap}",
            )
            axes.plot(
                densities,
                [row["cycles_ideal"] / dense[0]["cycles"] for _, row in points],
                "_",
                color="black",
                markersize=9,
            )
    axes.plot([], [], "_", color="black", markersize=9, label="ideal")
    axes.set(xscale="log", yscale="log", xlabel="share of a worker's blocks that are not zero")
    axes.set_ylabel(f"cycles / cycles of the dense tensor, {workers} workers")


PLOTS: dict[str, tuple[str, Draw]] = {
    "frame_size": (line_rate.NAME, _frame_size),
    "latency": (latency.NAME, _latency),
    "zero_skip": (zero_skip.NAME, _zero_skip),
}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    return main_of(PLOTS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
