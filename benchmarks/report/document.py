"""Tables of figures in the documents, renewed from a file of figures."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from afflux.commands.bench.registry import Row
from benchmarks.report.figures import read_rows
from benchmarks.report.stamp import Stamp

__all__ = ["Table", "Tables", "markdown", "render", "renew"]


def _all(row: Row) -> bool:
    return True


@dataclass(frozen=True)
class Table:
    """A table of a document.

    Attributes:
        bench: The "bench" of its rows.
        make: Makes it of its rows.
        measures: Paths of the code whose change makes its figures old.
        shows: Which rows of that benchmark it shows.
    """

    bench: str
    make: Callable[[list[Row]], str]
    measures: tuple[str, ...]
    shows: Callable[[Row], bool] = _all

    def __call__(self, rows: Iterable[Row]) -> str:
        """Return the table of those of these rows that it shows."""
        return self.make(self.rows_of(rows))

    def rows_of(self, rows: Iterable[Row]) -> list[Row]:
        """Return its own rows, but for those of a quick run, which are not figures."""
        return [
            row
            for row in rows
            if row["bench"] == self.bench and not row.get("quick") and self.shows(row)
        ]


Tables = Mapping[str, Table]
"""Tables by their names in the document."""

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
        ValueError: Its rows do not say when they were measured.
    """

    def section(match: re.Match[str]) -> str:
        name = match.group(1)
        table = tables[name]
        own = table.rows_of(rows)
        made = table.make(own)
        if len(made.splitlines()) <= _HEADER_LINES:
            return match.group(0)
        stamp = Stamp.of(own, table.measures)
        return f"<!-- {mark}: {name} -->\n{made}\n\n{stamp}\n<!-- end figures -->"

    pattern = rf"<!-- {mark}: (\w+) -->\n.*?<!-- end figures -->"
    return re.sub(pattern, section, text, flags=re.DOTALL)


def renew(mark: str, tables: Tables, arguments: list[str] | None) -> int:
    """Run the command line: the file of figures, then the document whose tables are renewed."""
    figures, document = map(Path, sys.argv[1:] if arguments is None else arguments)
    text = document.read_text(encoding="utf-8")
    document.write_text(render(text, mark, tables, read_rows(figures)), encoding="utf-8")
    return 0
