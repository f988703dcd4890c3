"""Tables of the documents as plots read them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Documents", "Row", "fraction", "milliseconds", "number"]

Row = dict[str, str]
"""The cells of a line, by title; a second column of one title is "TITLE 2"."""

_UNITS = {"s": 1e3, "ms": 1.0, "µs": 1e-3}


class Documents:
    """Marked tables of the pages in a folder, and the record of losses beside the plots."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def table(self, page: str, mark: str) -> list[Row]:
        """Return the lines of the table that stands after `<!-- MARK -->` in a page.

        Raises:
            KeyError: The page has no such table.
        """
        text = (self._folder / page).read_text(encoding="utf-8")
        found = re.search(rf"<!-- {mark} -->\n(.*?)<!-- end", text, re.DOTALL)
        if found is None:
            raise KeyError(f"{page} has no table {mark}")
        header, _, *lines = (line for line in found[1].splitlines() if line.startswith("|"))
        titles = list(_distinct(_cells(header)))
        return [dict(zip(titles, _cells(line), strict=True)) for line in lines]

    def losses(self, task: str) -> dict[str, Any]:
        """Return a trained model's losses by scheme, as `benchmarks.training.curves` has them."""
        text = (self._folder / "plots" / "losses.json").read_text(encoding="utf-8")
        found: dict[str, Any] = json.loads(text)[task]
        return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _distinct(titles: list[str]) -> Iterator[str]:
    for at, title in enumerate(titles):
        before = titles[:at].count(title)
        yield f"{title} {before + 1}" if before else title


def number(text: str) -> float:
    """Return the first number of a cell: `1,638,405`, `5.5 (5.4–5.6)`, `163 KB`."""
    found = re.match(r"-?[\d,]*\.?\d+", text)
    if found is None:
        raise ValueError(f"{text!r} does not begin with a number")
    return float(found[0].replace(",", ""))


def milliseconds(text: str) -> float:
    """Return a duration: `1.5 ms`, `37.0 µs`."""
    return number(text) * _UNITS[text.rpartition(" ")[2]]


def fraction(text: str) -> float:
    """Return a share: `0.4 %` is 0.004."""
    return number(text) / 100
