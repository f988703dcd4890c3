"""Plots of trainings: `python -m benchmarks.training.scheme_plots convergence.json docs/plots`."""

import statistics
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.report.plots import Draw, main_of
from benchmarks.training.plans import DENSE
from benchmarks.training.smoothing import WINDOW, smooth
from benchmarks.training.tasks import TASKS

__all__ = ["PLOTS", "main"]

_DRAWN = {
    "bf16": "#9ecae1",
    "int8": "#4292c6",
    "int4": "#08519c",
    "topk:density=0.01": "#fdae6b",
    "topk:density=0.01+feedback:on=off": "#a63603",
    "gtopk:density=0.01": "#a1d99b",
    "gtopk:density=0.01+momentum": "#41ab5d",
    "gtopk:density=0.001": "#bcbddc",
    "gtopk:density=0.001+momentum": "#6a51a3",
    "blocktopk:density=0.1": "#f768a1",
    "randomk:density=0.1": "#8c6d31",
}
"""Schemes whose curves are drawn, and how."""

_MARKS = {
    "fp16": "v",
    "bf16": "^",
    "int12": "<",
    "int8": ">",
    "int4": "d",
    "topk": "o",
    "gtopk": "s",
    "blocktopk": "P",
    "randomk": "X",
    "threshold": "*",
}

_COLOURS = {"digits": "#08519c", "lstm": "#f16913", "bag_dense": "#41ab5d"}


def _curves(task: str, axes: Any, rows: list[Row]) -> None:
    """Draw losses by step: of all trainings without a scheme, and of one with each."""
    rows = [row for row in rows if row["task"] == task]
    dense = [row for row in rows if row["scheme"] == DENSE]
    for number, row in enumerate(dense):
        label = (
            "" if number else f"everything, seeds {', '.join(str(each['seed']) for each in dense)}"
        )
        _curve(axes, row, label, color="black", linewidth=0.8)
    for scheme, colour in _DRAWN.items():
        found = next((row for row in rows if row["scheme"] == scheme), None)
        if found is not None:
            _curve(axes, found, scheme, color=colour, linewidth=1.6)
    axes.set(xlabel="steps", ylabel=f"loss in training, mean of {WINDOW} steps")
    axes.set_yscale("log" if task == "digits" else "linear")


def _curve(axes: Any, row: Row, label: str, **style: Any) -> None:
    losses = smooth(row["losses"])[WINDOW - 1 :]
    axes.plot(range(WINDOW, WINDOW + len(losses)), losses, label=label, **style)


def _volume(axes: Any, rows: list[Row]) -> None:
    """Draw what a training lacks over what it sends, both by what everything gives."""
    named: set[str] = set()
    for task, colour in _COLOURS.items():
        of_task = [row for row in rows if row["task"] == task and not row["failed"]]
        dense = [row for row in of_task if row["scheme"] == DENSE]
        counted = next((row for row in of_task if row["scheme"] == "float32"), None)
        if not dense or counted is None:
            continue
        end = statistics.fmean(_end(row) for row in dense)
        gained = dense[0]["held_out"][0][1] - end
        axes.plot([], [], "o", color=colour, label=TASKS[task].title)
        for scheme in dict.fromkeys(row["scheme"] for row in of_task):
            found = [row for row in of_task if row["scheme"] == scheme and "sent_bytes" in row]
            mark = _mark(scheme)
            if not found or not mark or "feedback" in scheme:
                continue
            lacking = (statistics.fmean(_end(row) for row in found) - end) / gained
            sent = statistics.fmean(row["sent_bytes"] for row in found) / counted["sent_bytes"]
            axes.plot([sent], [100 * lacking], mark, color=colour)
            named.add(mark)
    for word, mark in _MARKS.items():
        if mark in named:
            axes.plot([], [], mark, color="grey", label=word)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="bytes sent / bytes sent of everything")
    axes.set_ylabel("% of what dense training gains in held-out loss, lacking")


def _end(row: Row) -> float:
    return float(row["held_out"][-1][1])


def _mark(scheme: str) -> str:
    words: Sequence[str] = [part.partition(":")[0] for part in scheme.split("+")]
    return next((_MARKS[word] for word in words if word in _MARKS), "")


PLOTS: dict[str, tuple[str, Draw]] = {
    "convergence_digits": ("convergence", partial(_curves, "digits")),
    "convergence_lstm": ("convergence", partial(_curves, "lstm")),
    "convergence_bag": ("convergence", partial(_curves, "bag_dense")),
    "convergence_volume": ("convergence", _volume),
}


def main(arguments: list[str] | None = None) -> int:
    """Draw each plot as SVG. Needs matplotlib, the extra "plot"."""
    return main_of(PLOTS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
