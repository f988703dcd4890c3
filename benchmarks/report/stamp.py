"""When and of what code figures were measured, as rows have it and as documents say it."""

import re
import subprocess
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from afflux.commands.bench.registry import Row

__all__ = ["ROOT", "UNKNOWN", "Stamp", "git", "now"]

ROOT = Path(__file__).resolve().parents[2]
"""The checkout that is measured."""

UNKNOWN: Row = {"measured_at": "", "commit": ""}
"""What rows have that nobody dated."""

_MEASURED = ("hdl", "sim", "drivers", "host", "benchmarks")
_WIDTH = 120
_LINE = re.compile(r"Measured (\d{4}-\d\d-\d\d) at `([0-9a-f]+\+?)`, code of ((?:`[^`]+`,? ?)+)\.")


def git(*arguments: str) -> str:
    """Return what git says about the checkout; empty without git, or if it fails."""
    try:
        found = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


@cache
def now() -> Row:
    """Return what a process's rows have: the same for all of them.

    "measured_at" is in UTC. "commit" ends with `+` if sources differ from it, and is empty if it is
    not known.
    """
    commit = git("rev-parse", "--short=8", "HEAD")
    changed = commit and git("status", "--porcelain", "--untracked-files=no", "--", *_MEASURED)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"measured_at": at, "commit": f"{commit}+" if changed else commit}


@dataclass(frozen=True)
class Stamp:
    """The line below a table.

    Attributes:
        date: Of the measurement, in UTC.
        commit: That was measured; ends with `+` if sources differed from it.
        paths: Of the code whose change makes the figures old, from the root of the checkout.
    """

    date: str
    commit: str
    paths: tuple[str, ...]

    @classmethod
    def of(cls, rows: Iterable[Row], paths: Sequence[str]) -> "Stamp":
        """Return that of the row that was measured first.

        Raises:
            ValueError: A row does not say when it was measured, or of what.
        """
        first = min(({**UNKNOWN, **row} for row in rows), key=lambda row: row["measured_at"])
        if not (first["measured_at"] and first["commit"]):
            raise ValueError(f"{first['bench']} has rows without date and commit: measure it again")
        return cls(first["measured_at"][:10], first["commit"], tuple(paths))

    @classmethod
    def found_in(cls, text: str) -> "Stamp | None":
        """Return that of a table and what stands below it; None if it has none."""
        found = _LINE.search(" ".join(text.split()))
        if found is None:
            return None
        return cls(found[1], found[2], tuple(re.findall(r"`([^`]+)`", found[3])))

    def __str__(self) -> str:
        paths = ", ".join(f"`{path}`" for path in self.paths)
        text = f"Measured {self.date} at `{self.commit}`, code of {paths}."
        return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
