"""Plots of trainings with schemes, of errors, and of bytes on the wire."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from afflux.commands.bench import plot_style as style
from afflux.commands.bench.plot_style import BLUE, GREEN, GREY, ORANGE, PURPLE
from docs.generate.plots.tables import Documents, Row, number

__all__ = ["PLOTS"]

_CONVERGENCE = "schemes/convergence.md"
_TASKS = {
    "digits": ("convolutional network", BLUE),
    "lstm": ("LSTM", ORANGE),
    "bag_dense": ("embedding of words", GREEN),
}
_TICKS = {"digits": (0.01, 0.1, 1), "lstm": (5.5, 6, 7, 8), "bag_dense": (2.5, 3, 4, 5)}
_COLOURS = {
    **{"bf16": GREY, "int8": GREY, "int4": "#7a6a1a"},
    **{"topk": BLUE, "gtopk": ORANGE, "blocktopk": GREEN, "randomk": PURPLE},
}
_MARKS = {"as dense": "o", "behind": "o", "does not converge": "X"}


def _short(scheme: str) -> str:
    """Return a scheme as people say it: `topk:density=0.01+momentum` is "topk 1 %, momentum"."""
    scheme = re.sub(r":density=([\d.]+)", lambda found: f" {100 * float(found[1]):g} %", scheme)
    return scheme.replace("+feedback:on=off", ", no feedback").replace("+", ", ")


def _curves(task: str, title: str, documents: Documents) -> Any:
    """Draw losses by step: of all trainings without a scheme, and of one with each."""
    record = documents.losses(task)
    seeds = "3 seeds" if len(record["losses"][""]) == 3 else "1 seed"
    figure, axes = style.page(
        title,
        "Loss in training, mean of 20 steps. 4 ranks on one host: what is\n"
        f"averaged does not depend on the link. Black: all is sent, {seeds}.",
        4.3,
    )
    ends = []
    for scheme, trainings in record["losses"].items():
        colour = _COLOURS.get(re.split(r"[:+]", scheme)[0], "black")
        for losses in trainings:
            steps = [record["first_step"] + record["every"] * at for at in range(len(losses))]
            axes.plot(
                steps,
                losses,
                # Those that differ from others of their colour in an addition are dashed.
                "--" if "+" in scheme else "-",
                color=colour,
                linewidth=1.1 if scheme else 2.2,
                zorder=3 if scheme else 2,
            )
        if scheme == "":
            ends.append((steps[-1], trainings[0][-1], "everything is sent", colour))
        else:
            ends.append((steps[-1], losses[-1], _short(scheme), colour))
    last = steps[-1]
    axes.set(xlim=(0, 1.72 * last), xlabel="steps")
    axes.set_xticks(range(0, last + 1, 100))
    if task == "digits":
        axes.set(yscale="log", ylim=(0.009, 3.2))
    axes.set_yticks(_TICKS[task], [f"{each:g}" for each in _TICKS[task]])
    axes.set_yticks([], minor=True)
    style.end_labels(axes, ends)
    return figure


def _volume(documents: Documents) -> Any:
    """Draw how much less each scheme sends, and by the mark how its training was judged."""
    figure, axes = style.page(
        "How much less schemes send, and how trainings end",
        "Bytes of all sent / bytes sent, 4 ranks by an aggregator.\n"
        "● as dense, ○ behind, × does not converge",
        4.9,
    )
    style.key(figure, [("●", title, colour) for title, colour in _TASKS.values()])
    tables = {
        task: documents.table(_CONVERGENCE, f"convergence figures: {task}") for task in _TASKS
    }
    schemes = [
        scheme
        for scheme in dict.fromkeys(row["scheme"].strip("`") for row in tables["lstm"])
        if _compared(scheme)
    ]
    for at, (task, (_, colour)) in enumerate(_TASKS.items()):
        of_scheme = {row["scheme"].strip("`"): row for row in tables[task]}
        for line, scheme in enumerate(schemes):
            row = of_scheme.get(scheme)
            if row is not None:
                judged = row["judged"].strip("*")
                axes.plot(
                    [number(row["times less sent"])],
                    [line + 0.24 * (at - 1)],
                    _MARKS[judged],
                    color=colour,
                    markerfacecolor="white" if judged == "behind" else colour,
                    markeredgewidth=1.4,
                )
    style.row_names(axes, [_short(scheme) for scheme in schemes])
    for line in range(len(schemes) - 1):
        axes.axhline(line + 0.5, color="#e4e7eb", linewidth=0.8)
    style.ratio_axis(axes.xaxis, 0.25, 110)
    axes.axvline(1, color=GREY, linewidth=1.2)
    axes.set_xlabel("times less sent than everything")
    return figure


def _compared(scheme: str) -> bool:
    """Return whether a scheme's row is drawn: it is one, without anything added."""
    return not scheme.startswith(("none", "float32")) and "+" not in scheme


def _filled(rows: list[Row], title: str) -> dict[str, list[Row]]:
    """Return rows by a column in which an empty cell repeats the one above."""
    by_name: dict[str, list[Row]] = {}
    name = ""
    for row in rows:
        name = row[title] or name
        by_name.setdefault(name, []).append(row)
    return by_name


def _wire_bytes(documents: Documents) -> Any:
    figure, axes = style.page(
        "Bytes on the wire / bytes of the tensor",
        "4 MB of float32, blocks at random, 4 and 8 workers, any link.",
        3.6,
    )
    style.key(figure, [("····", "the least that has to travel", GREY)])
    ends = []
    rows = documents.table("benchmarks.md", "training figures: wire_bytes")
    for workers, marks in (("4", "s"), ("8", "o")):
        of_size = [row for row in rows if row["workers"] == workers]
        shares = [float(row["density"]) for row in of_size]
        for way, colour in (("sent", ORANGE), ("received", BLUE)):
            measured = [float(row[way]) for row in of_size]
            axes.plot(shares, measured, f"{marks}-", color=colour)
            axes.plot(shares, [float(row[f"least {way}"]) for row in of_size], ":", color=GREY)
            ends.append((shares[-1], measured[-1], f"{way}, {workers} workers", colour))
    style.percent_axis(axes.xaxis, (0.01, 0.1, 0.4, 1))
    axes.set(xlim=(0.0011, 1.2), yscale="log", ylim=(0.009, 1.4))
    axes.set_yticks((0.01, 0.1, 1), ("0.01", "0.1", "1"))
    axes.set_yticks([], minor=True)
    axes.set_xlabel("blocks that are not zero")
    style.end_labels(axes, ends, side="left")
    return figure


PLOTS: dict[str, Callable[[Documents], Any]] = {
    "convergence_digits": partial(
        _curves, "digits", "Training a convolutional network with schemes"
    ),
    "convergence_lstm": partial(_curves, "lstm", "Training an LSTM with schemes"),
    "convergence_bag": partial(_curves, "bag_dense", "Training an embedding of words with schemes"),
    "convergence_volume": _volume,
    "wire_bytes": _wire_bytes,
}
