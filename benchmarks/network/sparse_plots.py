"""Plots of the workloads' figures.

`python -m benchmarks.network.sparse_plots build/bench/sparse.json docs/plots` draws them.
"""

import sys

from benchmarks.network.workloads import WORKLOADS
from benchmarks.report.plots import Draw, main_of

__all__ = ["PLOTS", "main"]

PLOTS: dict[str, tuple[str, Draw]] = {
    name: plot for workload in WORKLOADS.values() for name, plot in workload.plots.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    return main_of(PLOTS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
