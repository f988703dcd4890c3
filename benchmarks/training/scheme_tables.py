"""Tables of trainings with schemes, for the terminal and for the documents.

`python -m benchmarks.training.scheme_tables build/bench/convergence.json docs/schemes/FILE.md`
renews the text between `<!-- convergence figures: NAME -->` and `<!-- end figures -->` there.
"""

import statistics
import sys
from collections.abc import Sequence
from functools import partial

from afflux.commands.bench.registry import Row
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.document import Table
from benchmarks.training import to_loss_tables
from benchmarks.training.plans import DENSE
from benchmarks.training.smoothing import first_at, last_mean
from benchmarks.training.tasks import TASKS

__all__ = ["TABLES", "brief", "judged", "main", "text_table"]

_CONVERGENCE = "convergence"

_HEADER = ["scheme", "seeds", "loss", "held out", "steps to dense's loss", "judged"]
_HEADER += ["sent in a step", "received", "times less sent", "said to send"]

_LATE = 0.7
"""Share of a training's steps; the loss that dense training has there is what others reach."""

_HALF = 0.5
"""Of what dense training gains: with less, a training has not converged."""


def brief(row: Row) -> str:
    """Return a training in a line."""
    text = f"{row['task']}, {row['scheme'] or 'no scheme'}, seed {row['seed']}: "
    if row["failed"]:
        return text + row["failed"]
    end = f"loss {last_mean(row['losses']):.4f}, held out {row['held_out'][-1][1]:.4f}"
    return text + f"{end}, {row['seconds']:.1f} s"


def text_table(rows: Sequence[Row]) -> str:
    """Show all trainings, for the terminal."""
    tables = []
    for task in TASKS.values():
        cells = _lines(task.name, rows)
        if cells:
            tables.append(aligned(f"{task.title}, {task.steps} steps", _HEADER, cells))
    return "\n\n".join(tables)


def judged(of_scheme: Sequence[Row], dense: Sequence[Row]) -> str:
    """Say how trainings with a scheme ended beside those with everything sent.

    "as dense": neither the mean loss in training nor that of what is held out is above that of any
    dense training by more than those differ among each other.

    Args:
        of_scheme: Rows of one task and scheme.
        dense: Rows of the same task without one, of several seeds.
    """
    failed = [row["failed"] for row in of_scheme if row["failed"]]
    if failed:
        return f"**diverged**: {failed[0]}"
    begin, dense_end = dense[0]["held_out"][0][1], statistics.fmean(map(_held_out, dense))
    end = statistics.fmean(map(_held_out, of_scheme))
    if end > begin - _HALF * (begin - dense_end):
        return "**does not converge**"
    for loss in (_held_out, _in_training):
        ends = list(map(loss, dense))
        if statistics.fmean(map(loss, of_scheme)) > max(ends) + (max(ends) - min(ends)):
            return "behind"
    return "as dense"


def _held_out(row: Row) -> float:
    return float(row["held_out"][-1][1])


def _in_training(row: Row) -> float:
    return last_mean(row["losses"])


def _lines(task: str, rows: Sequence[Row]) -> list[list[str]]:
    of_task = [row for row in rows if row["bench"] == _CONVERGENCE and row["task"] == task]
    dense = [row for row in of_task if row["scheme"] == DENSE]
    if not dense:
        return []
    counted = next((row for row in of_task if row["scheme"] == "float32"), dense[0])
    # Of a model that has two names the trainings of the other are as many more seeds.
    spread = [
        row for row in rows
        if row["bench"] == _CONVERGENCE and row["scheme"] == DENSE and _of_task(task, row)
    ]  # fmt: skip
    schemes = dict.fromkeys(row["scheme"] for row in of_task)
    return [
        _line([row for row in of_task if row["scheme"] == scheme], dense, spread, counted)
        for scheme in schemes
    ]


_TWINS = {"bag_dense": "bag", "lstm_sparse": "lstm"}


def _line(found: list[Row], dense: Sequence[Row], spread: Sequence[Row], counted: Row) -> list[str]:
    scheme = found[0]["scheme"]
    ended = [row for row in found if not row["failed"]]
    by_seed = {row["seed"]: row for row in dense}
    steps = []
    for row in ended:
        other = by_seed.get(row["seed"], dense[0])
        target = last_mean(other["losses"][: round(_LATE * other["steps"])])
        steps.append(first_at(row["losses"], target))
    known = [step for step in steps if step is not None]
    reached = f"{statistics.fmean(known):.0f}" if known and len(known) == len(steps) else "–"
    sent = [row["sent_bytes"] for row in ended if "sent_bytes" in row]
    received = [row["received_bytes"] for row in ended if "received_bytes" in row]
    said = found[0].get("volume_bytes")
    of_dense = counted.get("sent_bytes")
    return [
        f"`{scheme}`" if scheme else "none: everything is sent",
        ", ".join(str(row["seed"]) for row in found),
        _span(list(map(_in_training, ended))),
        _span(list(map(_held_out, ended))),
        reached,
        "–" if scheme == DENSE else judged(found, spread),
        _kilobytes(statistics.fmean(sent)) if sent else "–",
        _kilobytes(statistics.fmean(received)) if received else "–",
        f"{of_dense / statistics.fmean(sent):.1f}" if sent and of_dense else "–",
        _kilobytes(said) if said else "–",
    ]


def _span(values: Sequence[float]) -> str:
    """Return a mean, with the least and the most of several."""
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.4g}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.4g}–{max(values):.4g})"


def _kilobytes(count: float) -> str:
    return f"{count / 1e3:,.0f} KB" if count >= 1e4 else f"{count / 1e3:.1f} KB"


def _table(task: str, rows: list[Row]) -> str:
    return document.markdown(_HEADER, _lines(task, rows))


def _of_task(task: str, row: Row) -> bool:
    return row["task"] in (task, _TWINS.get(task, task))


_SCHEMES = ("host/afflux/compressors", "host/afflux/schemes")
_BETWEEN_HOSTS = ("drivers/native/aggregator", "drivers/native/engine", "drivers/native/worker")

TABLES: document.Tables = {
    **{
        name: Table(_CONVERGENCE, partial(_table, name), _SCHEMES, partial(_of_task, name))
        for name in TASKS
    },
    "to_loss": Table("to_loss", to_loss_tables.table, (*_BETWEEN_HOSTS, *_SCHEMES)),
}


def main(arguments: list[str] | None = None) -> int:
    """Renew a document's tables from a file of figures."""
    return document.renew("convergence figures", TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
