"""Two results of synthesis side by side."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["HISTORY", "compare", "flatten", "read"]

HISTORY = "docs/cost.json"
"""The result that is committed with the sources, so that each commit has its own."""

Leaf = int | float | str | bool | None


def read(name: str) -> dict[str, Any]:
    """Read a result from a file, or from the `docs/cost.json` of a commit.

    Raises:
        ValueError: If there is neither.
    """
    if Path(name).is_file():
        text = Path(name).read_text()
    else:
        shown = subprocess.run(
            ["git", "show", f"{name}:{HISTORY}"], capture_output=True, text=True, check=False
        )
        if shown.returncode:
            raise ValueError(f"{name} is neither a file nor a commit with {HISTORY}")
        text = shown.stdout
    document: dict[str, Any] = json.loads(text)
    return document


def flatten(document: Any, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield every value of a JSON document, with the keys that lead to it, joined by dots."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from flatten(value, f"{prefix}.{key}" if prefix else key)
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from flatten(value, f"{prefix}[{index}]")
    else:
        yield prefix, document


def compare(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return a table of the values that differ: name, before, after, and the difference of numbers.

    A value that only one of the two has is shown as "-" in the other.
    """
    old, new = dict(flatten(before)), dict(flatten(after))
    rows = [("", "before", "after", "difference")]
    for name in sorted(old | new):
        pair = old.get(name), new.get(name)
        if pair[0] != pair[1]:
            rows.append((name, _text(pair[0]), _text(pair[1]), _difference(*pair)))
    if len(rows) == 1:
        return "no differences\n"
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row in rows:
        numbers = "  ".join(
            cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
        )
        lines.append(f"{row[0].ljust(widths[0])}  {numbers}".rstrip())
    return "\n".join(lines) + "\n"


def _text(value: Leaf) -> str:
    return "-" if value is None else str(value)


def _difference(before: Leaf, after: Leaf) -> str:
    for value in (before, after):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return ""
    change = after - before  # type: ignore[operator]
    percent = f" ({100 * change / before:+.1f} %)" if before else ""  # type: ignore[operator]
    return f"{change:+.6g}{percent}"
