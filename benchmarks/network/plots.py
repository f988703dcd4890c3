"""Plots of the network's figures: `python -m benchmarks.network.plots network.json docs/plots`."""

import sys
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.network.cases import PLANS
from benchmarks.network.tables import NAMES
from benchmarks.report.plots import Draw, main_of

__all__ = ["PLOTS", "main"]

_COLOURS = {"auto": "#4292c6", "udp": "#f16913", "soft": "#9ecae1"}

_SETUPS = ("gigabit", "jumbo")


def _speedup(axes: Any, rows: list[Row]) -> None:
    """Draw bars of the ratio to Gloo at 1 Gbit/s, with the wire's limit as a line above each."""
    rows = [row for row in rows if "ratio" in row and not row["quick"]]
    places = [
        (plan.setup.name, case.name)
        for plan in PLANS
        for case in plan.cases
        if plan.setup.name in _SETUPS
        and any((row["setup"], row["case"]) == (plan.setup.name, case.name) for row in rows)
    ]
    topologies = [name for name in _COLOURS if any(row["topology"] == name for row in rows)]
    width = 0.8 / max(1, len(topologies))
    for number, topology in enumerate(topologies):
        found = {
            places.index((row["setup"], row["case"])): row
            for row in rows
            if row["topology"] == topology and (row["setup"], row["case"]) in places
        }
        centres = {at: at + (number - (len(topologies) - 1) / 2) * width for at in found}
        axes.bar(
            list(centres.values()),
            # Up from 1 where Afflux is faster, down where it is slower.
            [row["ratio"] - 1 for row in found.values()],
            width,
            bottom=1,
            color=_COLOURS[topology],
            label=NAMES[topology],
        )
        limits = {at: row for at, row in found.items() if row.get("limit_s")}
        axes.hlines(
            [row["gloo_limit_s"] / row["limit_s"] for row in limits.values()],
            [centres[at] - width / 2 for at in limits],
            [centres[at] + width / 2 for at in limits],
            color="black",
            linewidth=1,
            label="" if number else "the wire's limit",
        )
    axes.axhline(1, color="grey", linewidth=0.8)
    titles = {row["setup"] + row["case"]: f"{row['title']}\nMTU {row['mtu']}" for row in rows}
    names = [titles[setup + case] for setup, case in places]
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize="small")
    axes.set(yscale="log", ylabel="times as fast as Gloo")


PLOTS: dict[str, tuple[str, Draw]] = {"network_speedup": ("network", _speedup)}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    return main_of(PLOTS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
