"""Tables of figures in the documents, renewed from a file of figures."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from afflux.commands.bench.registry import Row
from benchmarks.report.figures import read_rows

__all__ = ["Tables", "markdown", "render", "renew"]

Tables = Mapping[str, Callable[[list[Row]], str]]
"""The function that makes each table, by its name in the document."""


_HEADER_LINES = 2


def markdown(header: Iterable[str], cells: Iterable[Iterable[str]]) -> str:
    """Write a table with these column titles."""
    titles = list(header)
    lines = [titles, *cells]
    first, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, "|" + "---|" * len(titles), *rest])


def render(text: str, mark: str, tables: Tables, rows: list[Row]) -> str:
    """Renew the tables in `text`, from `<!-- MARK: NAME -->` to `<!-- end figures -->`.

    A table for which `rows` have nothing stays: they may be of a part of all measurements.

    Raises:
        KeyError: There is no such table.
    """

    def section(match: re.Match[str]) -> str:
        name = match.group(1)
        table = tables[name](rows)
        if len(table.splitlines()) <= _HEADER_LINES:
            return match.group(0)
        return f"<!-- {mark}: {name} -->\n{table}\n<!-- end figures -->"

    pattern = rf"<!-- {mark}: (\w+) -->\n.*?<!-- end figures -->"
    return re.sub(pattern, section, text, flags=re.DOTALL)


def renew(mark: str, tables: Tables, arguments: list[str] | None) -> int:
    """Run the command line: the file of figures, then the document whose tables are renewed."""
    figures, document = map(Path, sys.argv[1:] if arguments is None else arguments)
    text = document.read_text(encoding="utf-8")
    document.write_text(render(text, mark, tables, read_rows(figures)), encoding="utf-8")
    return 0
