"""The table of how long trainings between hosts take to a loss."""

from collections.abc import Sequence

from afflux.commands.bench.registry import Row
from benchmarks.report import document
from benchmarks.report.durations import duration
from benchmarks.training.tasks import TASKS

__all__ = ["table"]

_HEADER = ["model", "link", "who sums", "scheme", "steps", "time", "times as fast", "a step"]
_HEADER += ["CPU of a rank"]

_WAYS = {"gloo": "Gloo", "auto": "Afflux, no address given", "udp": "Afflux, aggregator"}


def table(rows: list[Row]) -> str:
    """Show times to the same loss, Gloo's beside each."""
    order = {name: number for number, name in enumerate(TASKS)}
    places = sorted(
        {(order[row["task"]], row["task"], -row["rate_gbit"]) for row in rows},
    )
    cells = []
    for _, task, rate in places:
        here = [row for row in rows if (row["task"], row["rate_gbit"]) == (task, -rate)]
        here.sort(key=lambda row: (list(_WAYS).index(row["way"]), row["scheme"]))
        gloo = [row for row in here if row["way"] == "gloo" and row.get("reached")]
        cells += [_line(row, gloo) for row in here]
    return document.markdown(_HEADER, cells)


def _line(row: Row, gloo: Sequence[Row]) -> list[str]:
    task = TASKS[row["task"]]
    line = [
        f"{task.title}, loss {row['target']:g}",
        _rate(row["rate_gbit"]),
        _WAYS[row["way"]],
        f"`{row['scheme']}`" if row["scheme"] else "everything",
    ]
    if row["failed"] or not row["reached"]:
        why = row["failed"] or f"not in {row['steps']} steps: {row['loss']:.3g}"
        return [*line, why, "–", "–", duration(row["step_s"]) if "step_s" in row else "–", "–"]
    faster = f"{gloo[0]['seconds'] / row['seconds']:.2f}" if gloo else "–"
    return [
        *line,
        str(row["steps"]),
        f"{row['seconds']:.1f} s",
        faster,
        duration(row["step_s"]),
        duration(row["cpu_s"]),
    ]


def _rate(gbit: float) -> str:
    return f"{gbit:g} Gbit/s" if gbit >= 1 else f"{1000 * gbit:g} Mbit/s"
