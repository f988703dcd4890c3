"""Plots of sparse sums and priorities."""

from typing import Any

from afflux.commands.bench import plot_style as style
from afflux.commands.bench.plot_style import BLUE, ORANGE
from docs.generate.plots.tables import Documents, fraction, milliseconds, number

__all__ = ["PLOTS"]

_SENT = "lists"
_KIND = "random, "


def _index_formats(documents: Documents) -> Any:
    """Draw the bytes of a list of rows by density, a line for each format."""
    figure, axes = style.page(
        "Bytes of a rank's list of rows, by format",
        "Counted, not sent: 102,400 rows; those of one rank, at random.",
        4.0,
    )
    rows = [
        row
        for row in documents.table("schemes/zen.md", "rows: formats")
        if row["rows, density"].startswith(_KIND)
    ]
    shares = [fraction(row["rows, density"].removeprefix(_KIND)) for row in rows]
    formats = [name for name in rows[0] if name != "rows, density"]
    ends = []
    # A hash bitmap is two bytes more than a bitmap.
    formats.remove("hash bitmap")
    for at, name in enumerate(formats):
        sizes = [number(row[name]) for row in rows]
        colour = {"entropy": "black", _SENT: BLUE}.get(name, f"C{1 + at % 5}")
        axes.plot(
            shares,
            sizes,
            ":" if name == "entropy" else "-",
            color=colour,
            # The thick one is what Afflux sends.
            linewidth=3.5 if name == _SENT else 1.4,
        )
        text = {
            "entropy": "entropy: the least",
            _SENT: "lists, as Afflux sends",
            "bitmap": "bitmap, hash bitmap",
        }.get(name, name)
        ends.append((shares[-1], sizes[-1], text, colour))
    style.percent_axis(axes.xaxis, (0.001, 0.01, 0.1, 1))
    axes.set(xlim=(0.0009, 50), yscale="log", ylim=(90, 900_000))
    ticks = (100, 1_000, 10_000, 100_000)
    axes.set_yticks(ticks, [f"{each:,}" for each in ticks])
    axes.set_yticks([], minor=True)
    axes.set_xlabel("rows that the rank has")
    style.end_labels(axes, ends)
    return figure


def _overlap(documents: Documents) -> Any:
    """Draw a bar for each way: computing, and the communication that a step waits for."""
    figure, axes = style.page(
        "A training step with and without priorities",
        "4 hosts at 1 Gbit/s with an aggregator; VGG-16 by 16, computing is\n"
        "synthetic. Milliseconds, and exposed communication.",
        3.2,
    )
    rows = documents.table("schemes/mlsl.md", "overlap figures: ways")
    for at, row in enumerate(rows):
        step = milliseconds(row["step"])
        exposed = 0.0 if row["exposed"] == "–" else milliseconds(row["exposed"])
        axes.barh([at], [step - exposed], 0.62, color="#b9d6ee")
        axes.barh([at], [exposed], 0.62, left=step - exposed, color=ORANGE)
        axes.annotate(
            f"{step:.0f}",
            (step, at),
            (4, 0),
            textcoords="offset points",
            va="center_baseline",
            weight="bold",
        )
        inside = f"+ {exposed:.0f}" if exposed else "computing"
        axes.annotate(
            inside,
            (step - exposed / 2 if exposed else step / 2, at),
            color="white" if exposed else BLUE,
            ha="center",
            va="center_baseline",
            weight="bold",
            size=8.5,
        )
    names = [row["way"].replace(", steps deferred", ",\nsteps deferred") for row in rows]
    style.row_names(axes, names)
    axes.set(xlim=(0, 660), xticks=range(0, 601, 100), xlabel="milliseconds of a step")
    return figure


PLOTS = {"index_formats": _index_formats, "overlap": _overlap}
