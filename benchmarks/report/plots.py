"""Plots of figures as SVG. The same figures give the same file, and no legend covers data."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.report.figures import read_rows

__all__ = ["Draw", "draw_plots", "main_of"]

Draw = Callable[[Any, list[Row]], None]
"""Draws rows into matplotlib's axes, and labels what the legend is to name."""

_INCHES = (9, 4.5)


def draw_plots(plots: Mapping[str, tuple[str, Draw]], rows: list[Row], folder: Path) -> None:
    """Draw each plot into a file of its name. Needs matplotlib, the extra "plot".

    Args:
        plots: By name: the "bench" of its rows, and what draws them.
        rows: The rows of all benches.
        folder: Where the files go.
    """
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "afflux"
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for name, (bench, draw) in plots.items():
        figure, axes = pyplot.subplots(figsize=_INCHES, layout="constrained")
        draw(axes, [row for row in rows if row["bench"] == bench])
        axes.grid(visible=True, which="major", alpha=0.3)
        # Beside the axes: within them, it would cover a point sooner or later.
        figure.legend(loc="outside right upper", fontsize="small")
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)


def main_of(
    plots: Mapping[str, tuple[str, Draw]], about: str | None, arguments: list[str] | None
) -> int:
    """Run the command line of a suite's plots: the file of figures, then the folder.

    Args:
        plots: As for `draw_plots`.
        about: The text of `--help`.
        arguments: The command line; that of the process if None.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("figures", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    draw_plots(plots, read_rows(options.figures), options.folder)
    return 0
