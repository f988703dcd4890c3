"""The losses that the documents draw, as a record of a few kilobytes.

`python -m benchmarks.training.curves build/bench/convergence.json docs/plots/losses.json` writes
them: of every tenth step, the mean of those before it. `docs.generate.plots` draws them.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from afflux.commands.bench.registry import Row
from benchmarks.report.figures import read_rows
from benchmarks.training.plans import DENSE
from benchmarks.training.smoothing import WINDOW, smooth

__all__ = ["main", "record"]

_TASKS = ("digits", "lstm", "bag_dense")
_EVERY = 10

_SCHEMES = (
    *(DENSE, "bf16", "int8", "int4", "topk:density=0.01", "topk:density=0.01+feedback:on=off"),
    *("gtopk:density=0.01", "gtopk:density=0.01+momentum"),
    *("gtopk:density=0.001", "gtopk:density=0.001+momentum"),
    *("blocktopk:density=0.1", "randomk:density=0.1"),
)


def record(rows: list[Row]) -> str:
    """Return the record: of all trainings without a scheme, and of the first with each.

    By task: "first_step", "every" so many steps, and "losses" by scheme, a list for each training.
    """
    tasks = []
    for task in _TASKS:
        lines = ",\n".join(f"  {json.dumps(scheme)}: {found}" for scheme, found in _of(task, rows))
        head = f'"first_step": {WINDOW}, "every": {_EVERY}'
        tasks.append(f' "{task}": {{{head}, "losses": {{\n{lines}\n }}}}')
    return "{\n" + ",\n".join(tasks) + "\n}\n"


def _of(task: str, rows: list[Row]) -> Iterator[tuple[str, list[list[float]]]]:
    for scheme in _SCHEMES:
        found = [
            [float(f"{loss:.4g}") for loss in smooth(row["losses"])[WINDOW - 1 :: _EVERY]]
            for row in rows
            if (row["task"], row["scheme"]) == (task, scheme)
        ]
        if found:
            yield scheme, found if scheme == DENSE else found[:1]


def main(arguments: list[str] | None = None) -> int:
    """Write the record from a file of figures."""
    figures, path = map(Path, sys.argv[1:] if arguments is None else arguments)
    rows = [row for row in read_rows(figures) if row["bench"] == "convergence"]
    path.write_text(record(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
