"""Plots of the host's figures: `python -m benchmarks.ranks.plots host.json docs/plots`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.ranks.cases import CASES
from benchmarks.report.figures import read_rows

__all__ = ["main"]

_SHADES = {2: "#9ecae1", 4: "#4292c6", 8: "#08519c"}


def _speedup(axes: Any, rows: list[Row]) -> None:
    """Bars of the ratio to Gloo, with a mark where each was wanted."""
    ranks_seen = sorted({row["ranks"] for row in rows if row["case"] != "ddp_step"})
    width = 0.8 / max(1, len(ranks_seen))
    cases = [case for case in CASES if any(row["case"] == case.name for row in rows)]
    for number, ranks in enumerate(ranks_seen):
        by_case = {row["case"]: row for row in rows if row["ranks"] == ranks}
        places = [
            (place + (number - (len(ranks_seen) - 1) / 2) * width, case)
            for place, case in enumerate(cases)
            if case.name in by_case
        ]
        axes.bar(
            [place for place, _ in places],
            [by_case[case.name]["ratio"] for _, case in places],
            width,
            color=_SHADES.get(ranks, "grey"),
            label=f"{ranks} ranks",
        )
        for place, case in places:
            if ranks in case.wanted:
                wanted = case.wanted[ranks]
                axes.plot([place - width / 2, place + width / 2], [wanted, wanted], color="black")
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(cases)), [case.title.replace(", ", ",\n") for case in cases])
    axes.set(yscale="log", ylabel="times as fast as Gloo (black: wanted)")
    axes.legend()


def _times(axes: Any, rows: list[Row]) -> None:
    """Milliseconds of the 100-MB lines over the number of ranks, with their floors."""
    for case in CASES:
        of_case = [row for row in rows if row["case"] == case.name]
        if case.bytes != 10**8 or not of_case:
            continue
        of_case.sort(key=lambda row: row["ranks"])
        axes.plot(
            [row["ranks"] for row in of_case],
            [1e3 * row["afflux_s"] for row in of_case],
            "s--" if case.density < 1 else "o-",
            label=case.title,
        )
    dense = sorted((row for row in rows if row["case"] == "dense"), key=lambda row: row["ranks"])
    ranks = [row["ranks"] for row in dense]
    for key, label, style in (
        ("gloo_s", "Gloo, dense", "k^-"),
        ("floor_s", "add one in place", "k:"),
        ("read_floor_s", "read", "k--"),
    ):
        axes.plot(ranks, [1e3 * row[key] for row in dense], style, label=label, linewidth=1)
    axes.set_xticks(ranks)
    axes.set(yscale="log", xlabel="ranks", ylabel="ms of a call, 100 MB")
    axes.legend()


_PLOTS = {"host_speedup": _speedup, "host_times": _times}


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
    rows = [row for row in read_rows(options.figures) if row["bench"] == "host"]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, draw in _PLOTS.items():
        figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        draw(axes, rows)
        axes.grid(visible=True, which="major", alpha=0.3)
        figure.savefig(options.folder / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
