"""Plots of times beside Gloo's: on one host, between hosts, and where which of them is faster."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from afflux.commands.bench import plot_style as style
from afflux.commands.bench.plot_style import BLUE, GREY, ORANGE, SHADES
from docs.generate.plots.tables import Documents, Row, milliseconds, number

__all__ = ["CASES", "PLOTS", "Case", "found"]

_PAGE = "benchmarks.md"
_RANKS = ("2", "4", "8")
_SIZES = ("16 MB", "256 KB", "1 KB")
_STREAMS, _AGGREGATOR = "no address given", "aggregator"
_STREAMS_AGGREGATOR = "aggregator of streams"


class Case(NamedTuple):
    """A line of a table in which Afflux and Gloo take turns.

    Attributes:
        title: Its name in the plot.
        table: Mark of the table.
        what: Its first column.
        other: Its second one: ranks, or who sums.
    """

    title: str
    table: str
    what: str
    other: str


def _fast(title: str, gbit: int, what: str, who: str) -> Case:
    return Case(title, "network figures: fast", f"2 hosts, {gbit} Gbit/s, MTU 1,500: {what}", who)


CASES: dict[str, tuple[Case, ...]] = {
    "One host, 4 ranks": (
        Case("all-reduce, 4 KB", "host figures: speed", "4 KB", "4"),
        Case("100 MB, in afflux.empty", "host figures: speed", "100 MB dense, reachable", "4"),
        Case("100 MB, 1 % of blocks", "host figures: speed", "100 MB, 1 % of blocks", "4"),
        Case("100 MB dense", "host figures: speed", "100 MB dense", "4"),
        Case("pipelining, 1F1B", "host figures: steps", "pipelining, 1F1B", "4"),
        Case("all_to_all (by Gloo)", "host figures: passed_on", "all_to_all, 256 KB", "4"),
        Case("making 16 groups", "host figures: subgroups", "16 groups", "4"),
    ),
    "4 hosts at 1 Gbit/s": (
        Case(
            *("1 % of blocks, aggregator", "network figures: gigabit", "100 MiB, 1 % of blocks"),
            _AGGREGATOR,
        ),
        Case(
            *("1 % of blocks, streams", "network figures: gigabit", "100 MiB, 1 % of blocks"),
            _STREAMS,
        ),
        Case(
            *("DDP step, embedding, aggregator", "network figures: steps"),
            "1 Gbit/s, MTU 1,500: DDP step, 24.4-MiB embedding, 1 % of rows",
            _AGGREGATOR,
        ),
        Case("dense, aggregator", "network figures: gigabit", "100 MiB dense", _AGGREGATOR),
        Case("dense, streams", "network figures: gigabit", "100 MiB dense", _STREAMS),
    ),
    "2 hosts at 10 Gbit/s": (
        _fast("1 % of blocks, default", 10, "100 MiB, 1 % of blocks", _STREAMS),
        _fast("4 KB, aggregator", 10, "4 KB", _AGGREGATOR),
        _fast("dense, default", 10, "100 MiB dense", _STREAMS),
        _fast("dense, aggregator", 10, "100 MiB dense", _AGGREGATOR),
        _fast("64 KB, default", 10, "64 KB", _STREAMS),
    ),
    "2 hosts at 25 Gbit/s": (
        _fast("1 % of blocks, default", 25, "100 MiB, 1 % of blocks", _STREAMS),
        _fast("dense, default", 25, "100 MiB dense", _STREAMS),
        _fast("dense, aggregator", 25, "100 MiB dense", _AGGREGATOR),
    ),
}
"""The cases of `where_it_wins` by place, those where Afflux loses among them."""


def found(documents: Documents, case: Case) -> Row:
    """Return the line of a case. Raises `ValueError` unless there is one."""
    (line,) = (
        row
        for row in documents.table(_PAGE, case.table)
        if list(row.values())[:2] == [case.what, case.other]
    )
    return line


def _times(row: Row) -> float:
    return number(row["times as fast"])


def _where_it_wins(documents: Documents) -> Any:
    """Draw a dot for each case, on the left of 1 where Gloo is faster."""
    figure, axes = style.page(
        "Where Afflux is faster than Gloo, and where not",
        "Gloo's time / Afflux's. All hosts share one machine of two cores.",
        5.9,
    )
    names: list[str] = []
    for place, cases in CASES.items():
        names.append(f"{place}:")
        for case in cases:
            ratio = _times(found(documents, case))
            colour = BLUE if ratio >= 1 else ORANGE
            axes.plot([1, ratio], [len(names)] * 2, color=colour, linewidth=2, alpha=0.45)
            axes.plot([ratio], [len(names)], "o", color=colour, markersize=7)
            axes.annotate(
                f"{ratio:.3g}×" if ratio >= 1 else f"{round(ratio, 2):g}×",
                (ratio, len(names)),
                (7 if ratio >= 1 else -7, 0),
                textcoords="offset points",
                color=colour,
                weight="bold",
                ha="left" if ratio >= 1 else "right",
                va="center_baseline",
            )
            names.append(case.title)
    style.row_names(axes, names)
    style.ratio_axis(axes.xaxis, 0.1, 400)
    axes.xaxis.set_ticks([0.1, 1, 10, 100], ["0.1×", "1×", "10×", "100×"])
    axes.axvline(1, color=GREY, linewidth=1.2)
    axes.axvspan(0.1, 1, color=ORANGE, alpha=0.06, linewidth=0)
    top = {"va": "bottom", "weight": "bold", "size": 9}
    axes.annotate(
        "Gloo is faster",
        (1, -0.6),
        (-5, 3),
        textcoords="offset points",
        ha="right",
        color=ORANGE,
        **top,
    )
    axes.annotate(
        "Afflux is faster", (1, -0.6), (5, 3), textcoords="offset points", color=BLUE, **top
    )
    return figure


def _host_speedup(documents: Documents) -> Any:
    """Draw the ratio to Gloo over the number of ranks, a line for each kind of tensor."""
    figure, axes = style.page(
        "All-reduce on one host, times as fast as Gloo",
        "Shared memory, 2 to 8 ranks on two cores, float32.",
        3.6,
    )
    ends = []
    rows = documents.table(_PAGE, "host figures: speed")
    for at, what in enumerate(dict.fromkeys(row["what"] for row in rows)):
        ratios = [_times(row) for row in rows if row["what"] == what]
        axes.plot(range(len(ratios)), ratios, "o-", color=f"C{at}")
        ends.append((len(ratios) - 1, ratios[-1], what, f"C{at}"))
    axes.set(xlim=(-0.15, 4.3), xlabel="ranks", xticks=range(3))
    axes.set_xticklabels(_RANKS)
    style.ratio_axis(axes.yaxis, 0.8, 200)
    axes.axhline(1, color=GREY, linewidth=1.2)
    axes.annotate(
        "as fast as Gloo", (-0.1, 1), (0, 2), textcoords="offset points", color=GREY, size=8.5
    )
    style.end_labels(axes, ends)
    return figure


def _host_times(documents: Documents) -> Any:
    """Draw milliseconds of the 100-MB lines over the number of ranks, with their floors."""
    figure, axes = style.page(
        "All-reduce of 100 MB on one host, milliseconds",
        "Shared memory, 2 to 8 ranks on two cores, float32.",
        3.9,
    )
    rows = [
        r for r in documents.table(_PAGE, "host figures: speed") if r["what"].startswith("100 MB")
    ]
    dense = [row for row in rows if row["what"] == "100 MB dense"]
    read = [row for row in rows if row["what"] == "100 MB, 1 % of blocks, reachable"]
    lines = [("Gloo, dense", [milliseconds(row["Gloo"]) for row in dense], "black", "^-")]
    lines += [
        (
            what.removeprefix("100 MB").strip(", "),
            _afflux([r for r in rows if r["what"] == what]),
            f"C{at}",
            "o-",
        )
        for at, what in enumerate(dict.fromkeys(row["what"] for row in rows))
    ]
    for text, of in (("floor: add one in place", dense), ("floor: read", read)):
        lines.append((text, [milliseconds(row["floor"]) for row in of], GREY, ":"))
    ends = []
    for text, times, colour, marks in lines:
        axes.plot(range(3), times, marks, color=colour)
        ends.append((2, times[-1], text, colour))
    axes.set(xlim=(-0.15, 3.7), ylim=(8, 900), yscale="log", xlabel="ranks", xticks=range(3))
    axes.set_xticklabels(_RANKS)
    ticks = (10, 20, 50, 100, 200, 500)
    axes.set_yticks(ticks, [f"{each} ms" for each in ticks])
    axes.set_yticks([], minor=True)
    style.end_labels(axes, ends)
    return figure


def _afflux(rows: Sequence[Row]) -> list[float]:
    return [milliseconds(row["Afflux"]) for row in rows]


def _host_collectives(documents: Documents) -> Any:
    """Draw a row of dots for each call, by size; a panel for each number of ranks."""
    figure, panels = style.page(
        "Collectives on one host, times as fast as Gloo",
        "Shared memory, two cores, float32 where nothing else is said.",
        4.6,
        ncols=2,
        sharey=True,
    )
    colours = dict(zip(_SIZES, SHADES, strict=True))
    style.key(figure, [("●", size, colour) for size, colour in colours.items()])
    rows = documents.table(_PAGE, "host figures: collectives")
    calls = list(dict.fromkeys(row["what"].partition(", ")[0] for row in rows))
    for axes, ranks in zip(panels, ("2", "4"), strict=True):
        for at, call in enumerate(calls):
            of_call = [
                row
                for row in rows
                if row["ranks"] == ranks and row["what"].partition(", ")[0] == call
            ]
            ratios = [_times(row) for row in of_call]
            axes.plot([min(ratios), max(ratios)], [at, at], color="#d5dae0", linewidth=2)
            for row, ratio in zip(of_call, ratios, strict=True):
                # A barrier has no size.
                colour = colours.get(row["what"].partition(", ")[2], GREY)
                axes.plot([ratio], [at], "o", color=colour)
        style.row_names(axes, calls)
        style.ratio_axis(axes.xaxis, 0.8, 700)
        axes.set_xticks([1, 5, 20, 100], ["1×", "5×", "20×", "100×"])
        axes.axvline(1, color=GREY, linewidth=1.2)
        axes.set_title(f"{ranks} ranks")
    return figure


def _network_speedup(documents: Documents) -> Any:
    """Draw dots for each tensor, coloured by topology; a panel for each size of packets."""
    tables = {
        "packets of 1,500 bytes": documents.table(_PAGE, "network figures: gigabit"),
        "jumbo frames": documents.table(_PAGE, "network figures: jumbo"),
    }
    whats = [list(dict.fromkeys(row["what"] for row in rows)) for rows in tables.values()]
    figure, panels = style.page(
        "All-reduce between hosts, times as fast as Gloo",
        "4 hosts at 1 Gbit/s, a rank each, float32. Gloo's measured time by\n"
        "Afflux's, and by the least time that the wire allows Afflux.",
        5.2,
        nrows=2,
        sharex=True,
        height_ratios=[len(each) + 0.5 for each in whats],
    )
    colours = {_AGGREGATOR: ORANGE, _STREAMS: BLUE, _STREAMS_AGGREGATOR: SHADES[-1]}
    places = {_AGGREGATOR: -0.22, _STREAMS: 0.22, _STREAMS_AGGREGATOR: 0.0}
    style.key(
        figure,
        [
            ("●", "aggregator", ORANGE),
            ("●", "of streams", SHADES[-1]),
            ("●", "no address", BLUE),
            ("|", "the wire's limit", GREY),
        ],
    )
    for axes, (title, rows), names in zip(panels, tables.items(), whats, strict=True):
        for row in rows:
            at = names.index(row["what"]) + places[row["who sums"]]
            colour = colours[row["who sums"]]
            axes.plot([_times(row)], [at], "o", color=colour)
            if row["wire's limit"] != "–":
                limit = milliseconds(row["Gloo"]) / milliseconds(row["wire's limit"])
                axes.plot([limit], [at], "|", color=colour, markersize=9, markeredgewidth=1.6)
                axes.plot([_times(row), limit], [at, at], color=colour, linewidth=1, alpha=0.5)
        style.row_names(
            axes, [name.replace(", the same", ",\nthe same at all ranks") for name in names]
        )
        style.ratio_axis(axes.xaxis, 0.7, 190)
        axes.axvline(1, color=GREY, linewidth=1.2)
        axes.set_title(title)
    return figure


PLOTS = {
    "where_it_wins": _where_it_wins,
    "host_speedup": _host_speedup,
    "host_times": _host_times,
    "host_collectives": _host_collectives,
    "network_speedup": _network_speedup,
}
