"""Plots of training: `python -m benchmarks.training.plots build/bench/engine.json docs/plots`."""

import sys
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.report.plots import Draw, main_of

__all__ = ["PLOTS", "main"]

_MARKS = {2: "o", 4: "s", 8: "^"}


def _accuracy(axes: Any, rows: list[Row]) -> None:
    for data in dict.fromkeys(row["data"] for row in rows):
        of_data = [row for row in rows if row["data"] == data]
        axes.plot(
            [row["workers"] for row in of_data],
            [row["rms_ratio"] for row in of_data],
            marker="o",
            label=data,
        )
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks([2, 4, 8])
    axes.set(xlabel="workers", ylabel="RMS error / Gloo's float32 RMS error")


def _wire_bytes(axes: Any, rows: list[Row]) -> None:
    for workers in dict.fromkeys(row["workers"] for row in rows):
        of_size = sorted(
            (row for row in rows if row["workers"] == workers), key=lambda row: row["density"]
        )
        densities = [row["density"] for row in of_size]
        for way, least, style in (
            ("sent", "least_sent", "-"),
            ("received", "least_received", "--"),
        ):
            line = axes.plot(
                densities,
                [row[way] for row in of_size],
                style,
                marker=_MARKS[workers],
                label=f"{way}, {workers} workers",
            )[0]
            axes.plot(densities, [row[least] for row in of_size], ":", color=line.get_color())
    axes.plot([], [], ":", color="black", label="least possible")
    axes.set(xscale="log", yscale="log", xlabel="share of blocks that are not zero")
    axes.set_ylabel("bytes on the wire / bytes of the tensor")


PLOTS: dict[str, tuple[str, Draw]] = {
    "accuracy": ("accuracy", _accuracy),
    "wire_bytes": ("wire_bytes", _wire_bytes),
}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    return main_of(PLOTS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
