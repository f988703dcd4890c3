"""Plots of figures: `python -m benchmarks.training.plots build/bench/engine.json docs/plots`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]

_MARKS = {2: "o", 4: "s", 8: "^"}


def _accuracy(axes: Any, rows: list[dict[str, Any]]) -> None:
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
    axes.legend()


def _wire_bytes(axes: Any, rows: list[dict[str, Any]]) -> None:
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
    axes.set(xscale="log", yscale="log", xlabel="share of blocks that are not zero")
    axes.set_ylabel("bytes on the wire / bytes of the tensor (dotted: least possible)")
    axes.legend()


_PLOTS = {"accuracy": _accuracy, "wire_bytes": _wire_bytes}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same figures give the same file.
    mpl.rcParams["svg.hashsalt"] = "afflux"
    from matplotlib import pyplot

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    rows = json.loads(options.figures.read_text(encoding="utf-8"))["rows"]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, draw in _PLOTS.items():
        figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        draw(axes, [row for row in rows if row["bench"] == name])
        axes.grid(visible=True, which="major", alpha=0.3)
        figure.savefig(options.folder / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
