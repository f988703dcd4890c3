"""Plots of the host's figures: `python -m benchmarks.ranks.plots host.json docs/plots`."""

import sys
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.ranks.cases import CASES
from benchmarks.ranks.collectives import COLLECTIVE_CALLS, NATIVE, SIZE_TITLES
from benchmarks.report.plots import Draw, main_of

__all__ = ["PLOTS", "main"]

_SHADES = {2: "#9ecae1", 4: "#4292c6", 8: "#08519c"}

_SIZE_SHADES = {2: ("#9ecae1", "#4292c6", "#08519c"), 4: ("#fdae6b", "#f16913", "#a63603")}
"""By number of ranks: for the smallest size first."""


def _speedup(axes: Any, rows: list[Row]) -> None:
    """Draw bars of the ratio to Gloo."""
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
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(cases)), [case.title.replace(", ", ",\n") for case in cases])
    axes.set(yscale="log", ylabel="times as fast as Gloo")


def _times(axes: Any, rows: list[Row]) -> None:
    """Draw milliseconds of the 100-MB lines over the number of ranks, with their floors."""
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


def _collectives(axes: Any, rows: list[Row]) -> None:
    """Draw bars of the ratio to Gloo: of each call, by size and number of ranks."""
    rows = [row for row in rows if "ratio" in row]
    calls = [call.name for call in COLLECTIVE_CALLS]
    series = [(ranks, size) for ranks in _SIZE_SHADES for size in SIZE_TITLES]
    width = 0.84 / len(series)
    for number, (ranks, size) in enumerate(series):
        # A barrier has no size: its bar is among those of the smallest.
        ratios = {
            calls.index(row["what"]): row["ratio"]
            for row in rows
            if row["ranks"] == ranks and (row["size"] or next(iter(SIZE_TITLES))) == size
        }
        axes.bar(
            [place + (number - (len(series) - 1) / 2) * width for place in ratios],
            # Up from 1 where Afflux is faster, down where it is slower.
            [ratio - 1 for ratio in ratios.values()],
            width,
            bottom=1,
            color=_SIZE_SHADES[ranks][list(SIZE_TITLES).index(size)],
            label=f"{ranks} ranks, {SIZE_TITLES[size]}",
        )
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(calls)), calls, rotation=35, ha="right", fontsize="small")
    axes.set(yscale="log", ylabel="times as fast as Gloo")


PLOTS: dict[str, tuple[str, Draw]] = {
    "host_speedup": ("host", _speedup),
    "host_times": ("host", _times),
    "host_collectives": (NATIVE.bench, _collectives),
}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    return main_of(PLOTS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
