"""The file of figures: each suite replaces its own rows in it and leaves the others'."""

import json
from collections.abc import Collection
from pathlib import Path

from afflux.commands.bench.machine import describe_machine
from afflux.commands.bench.registry import SCHEMA, Row
from benchmarks.report import stamp

__all__ = ["merge_rows", "read_rows"]

# What is measured is what this process has imported, whoever commits before its rows are written.
stamp.now()


def read_rows(path: Path) -> list[Row]:
    """Return the rows of the file; none if it does not exist, or has another schema.

    All have a date and a commit (`stamp.now`), which may be unknown.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    rows: list[Row] = content["rows"] if content.get("schema") == SCHEMA else []
    return [stamp.UNKNOWN | row for row in rows]


def merge_rows(path: Path, names: Collection[str], rows: list[Row]) -> None:
    """Write `rows` in the place of all rows whose "bench" is one of `names`.

    Those without a date and a commit are this process's, and get its own.
    """
    kept = [row for row in read_rows(path) if row["bench"] not in names]
    new = [stamp.now() | row for row in rows]
    result = {"schema": SCHEMA, "machine": describe_machine(), "rows": kept + new}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
