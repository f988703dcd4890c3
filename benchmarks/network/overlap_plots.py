"""Plot of priorities: `python -m benchmarks.network.overlap_plots overlap.json docs/plots`."""

import sys
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.network.overlap import NAME
from benchmarks.report.plots import Draw, main_of

__all__ = ["PLOTS", "main"]


def _steps(axes: Any, rows: list[Row]) -> None:
    """Draw a bar for each way: what it computes, and the communication that is exposed."""
    names = [row["title"] for row in rows]
    alone = [1e3 * (row["step_s"] - row["exposed_s"]) for row in rows]
    exposed = [1e3 * max(0.0, row["exposed_s"]) for row in rows]
    axes.barh(names, alone, color="#9ecae1", label="compute (synthetic)")
    axes.barh(names, exposed, left=alone, color="#f16913", label="exposed communication")
    axes.invert_yaxis()
    axes.set(xlabel="milliseconds of a step")


PLOTS: dict[str, tuple[str, Draw]] = {"overlap": (NAME, _steps)}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    return main_of(PLOTS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
