"""Plots of what lists of rows take: `python -m benchmarks.rows.plots docs/plots`."""

import sys
from pathlib import Path
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.report.plots import Draw, draw_plots
from benchmarks.rows.__main__ import format_sizes

__all__ = ["PLOTS", "main"]

_BENCH = "rows"
_KIND = "random"


def _sizes(axes: Any, rows: list[Row]) -> None:
    """Draw bytes for each row that is listed, by density, a line for each form."""
    rows = [row for row in rows if row["kind"] == _KIND]
    for name in rows[0]["sizes"]:
        axes.plot(
            [100 * row["density"] for row in rows],
            [row["sizes"][name] for row in rows],
            # The thick one is sent by Afflux; the bound does not stand for a form.
            linewidth=3 if name == "lists" else 1.2,
            linestyle=":" if name == "entropy" else "-",
            marker="" if name == "entropy" else ".",
            label=name,
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="rows that a rank has, % of 102,400 (random)",
        ylabel="bytes of their list",
    )


PLOTS: dict[str, tuple[str, Draw]] = {"index_formats": (_BENCH, _sizes)}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG into a folder. Needs matplotlib, the extra "plot"."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    rows: list[Row] = [
        {"bench": _BENCH, "kind": kind, "density": density, "sizes": sizes}
        for (kind, density), sizes in format_sizes().items()
    ]
    draw_plots(PLOTS, rows, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
