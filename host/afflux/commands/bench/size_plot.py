"""The plot of `afflux bench --plot`: time and bus bandwidth over size. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afflux.commands.bench import plot_style as style
from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.nccl_format import bus_bandwidth
from afflux.commands.bench.registry import Row

__all__ = ["draw", "figure_of"]

_LINES = {
    "afflux": ("Afflux", "o-", style.BLUE),
    "gloo": ("Gloo", "s-", style.ORANGE),
    "mpi": ("MPI", "^-", style.GREEN),
    "floor": ("add one in place", ":", style.GREY),
    "read_floor": ("read", "--", style.GREY),
}
_MOST_SIZES = 6
"""That an axis names, so that they stay apart."""


def draw(rows: list[Row], path: Path) -> None:
    """Write an SVG: all rows of the first type and reduction in them, in place."""
    with style.sheet():
        path.write_text(style.compact(figure_of(rows)), encoding="utf-8")


def figure_of(rows: list[Row]) -> Any:
    """Return the figure, in the style sheet that is in force."""
    first = rows[0]
    collective = COLLECTIVES[first["what"]]
    factor = collective.bus_factor(first["ranks"])
    rows = [row for row in rows if (row["dtype"], row["op"]) == (first["dtype"], first["op"])]
    density = "" if first["density"] == 1 else f", {first['density']:g} of blocks not zero"
    figure, (times, rates) = style.page(
        f"{collective.name}: time and bus bandwidth",
        f"{first['op']}, {first['dtype']}, {first['ranks']} ranks, in place{density}.\n"
        f"Engine: {first['engine']}",
        6.4,
        nrows=2,
    )
    sizes = [row["bytes"] for row in rows]
    lines = dict(_LINES)
    if collective.name != "all_reduce":
        lines["floor"] = ("memcpy", *_LINES["floor"][1:])
    ends: tuple[list[style.End], list[style.End]] = ([], [])
    for key, (label, marks, colour) in lines.items():
        if f"{key}_s" not in first:
            continue
        seconds = [row[f"{key}_s"] for row in rows]
        curves = [(times, ends[0], [1e6 * each for each in seconds])]
        if "floor" not in key:
            bandwidths = [
                bus_bandwidth(size, each, factor) for size, each in zip(sizes, seconds, strict=True)
            ]
            curves.append((rates, ends[1], bandwidths))
        for axes, named, values in curves:
            axes.plot(sizes, values, marks, color=colour)
            named.append((sizes[-1], values[-1], label, colour))
    _time_axis(times)
    rates.set(ylabel="busbw (GB/s)", ylim=(0, None), xlabel="bytes")
    _name_ticks(rates)
    for axes, named in zip((times, rates), ends, strict=True):
        _size_axis(axes, sizes)
        style.end_labels(axes, named)
    return figure


def _time_axis(axes: Any) -> None:
    """Make the axis one of µs, with ticks between the powers of ten where there are few of them."""
    from matplotlib.ticker import LogLocator

    axes.set(yscale="log", ylabel="µs of a call")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axes.set_yticks([], minor=True)
    _name_ticks(axes)


def _name_ticks(axes: Any) -> None:
    """Write the ticks within the limits as plain numbers."""
    low, high = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:,.6g}" for tick in ticks])


def _size_axis(axes: Any, sizes: Sequence[int]) -> None:
    """Make the axis one of sizes, with room for the curves' names on its right."""
    span = max(sizes[-1] / sizes[0], 4)
    axes.set(xscale="log", xlim=(sizes[0] / span**0.05, sizes[-1] * span**0.5))
    named = sizes[:: -(-len(sizes) // _MOST_SIZES)]
    axes.set_xticks(named, [_short(size) for size in named])
    axes.set_xticks([], minor=True)


def _short(size: int) -> str:
    """Return a size as the options take it, 32M, where that is exact."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)
