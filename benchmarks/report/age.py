"""`python -m benchmarks.report.age`: which tables of figures are older than the code they measure.

`make benchmarks-age` prints a line for each table that a command of `benchmarks/` writes.

Tested: `tests/house/test_figures_age.py`.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.report.columns import aligned
from benchmarks.report.stamp import ROOT, Stamp, git

__all__ = ["Change", "Measured", "main", "measured_tables", "report"]

_TABLE = re.compile(r"<!-- ((?:\w+ )?figures: \w+) -->\n(.*?)<!-- end figures -->", re.DOTALL)
_NOT_MEASURED = (":(exclude)*.md", ":(exclude)**/tests/**")


@dataclass(frozen=True)
class Change:
    """What has changed in some paths since a commit: commits, and lines that differ now."""

    commits: int
    lines: int


@dataclass(frozen=True)
class Measured:
    """A table of a document.

    Attributes:
        document, name: Where it is.
        stamp: The line below it; None if it has none.
    """

    document: str
    name: str
    stamp: Stamp | None

    @cached_property
    def change(self) -> Change | None:
        """What has changed in the code that it measures; None if its commit is not in the history.

        Changes that are in no commit yet count as lines; documents and tests do not count.
        """
        if self.stamp is None:
            return None
        at = self.stamp.commit.removesuffix("+")
        where = ("--", *self.stamp.paths, *_NOT_MEASURED)
        # A commit of another branch may be here, and nowhere that this branch goes.
        if git("rev-list", "--count", f"HEAD..{at}") != "0":
            return None
        commits = git("rev-list", "--count", "--no-merges", f"{at}..HEAD", *where)
        numbers = re.findall(
            r"(\d+) (?:insertion|deletion)", git("diff", "--shortstat", at, *where)
        )
        return Change(int(commits), sum(map(int, numbers)))

    @property
    def is_older(self) -> bool:
        """Whether the code has changed, or nobody can know: what was measured is in no commit."""
        return self.change is None or self.change.lines > 0 or self.commit.endswith("+")

    @property
    def commit(self) -> str:
        """What was measured; empty if it does not say so."""
        return self.stamp.commit if self.stamp else ""


def measured_tables(folder: Path) -> Iterator[Measured]:
    """Find the tables of all documents below a folder."""
    for path in sorted(folder.rglob("*.md")):
        for mark, body in _TABLE.findall(path.read_text(encoding="utf-8")):
            yield Measured(str(path.relative_to(folder)), mark, Stamp.found_in(body))


def report(tables: Sequence[Measured]) -> str:
    """Return a line for each table: when it was measured, and what has changed since."""
    cells = []
    for each in tables:
        counts = [str(each.change.commits), str(each.change.lines)] if each.change else ["?", "?"]
        date = each.stamp.date if each.stamp else ""
        older = "older" if each.is_older else ""
        cells.append([f"{each.document}, {each.name}", date, each.commit, *counts, older])
    count = sum(each.is_older for each in tables)
    heading = f"{len(tables)} tables of figures, {count} of them older than the code they measure"
    return aligned(heading, ["table", "measured", "at", "commits since", "lines", ""], cells)


def main() -> int:
    """Print the report."""
    print(report(list(measured_tables(ROOT / "docs"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
