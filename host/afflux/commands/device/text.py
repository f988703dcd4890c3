"""Values as lines of text, for `afflux device`."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["columns", "flat"]


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield names and values, those of inner tables with the outer name before theirs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", ", ".join(map(_inner, value)) or "none"
        else:
            yield f"{prefix}{name}", _plain(value)


def _inner(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_plain(each)}" for name, each in value.items())
    return _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def columns(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as lines, each column as wide as its widest cell."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)] if table else []
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
