"""Reads what Verilator has counted: the points of `coverage.dat`.

A line of that file is `C '…' count`; between the quotes are keys and values, each key after a
\\x01, each value after a \\x02.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Point", "read_points"]

_LINE = re.compile(r"^C '(.*)' (\d+)$", re.S)
_PAIR = re.compile("\x01([^\x02]+)\x02([^\x01]*)")


@dataclass(frozen=True)
class Point:
    """One thing that a simulation may meet or not.

    Attributes:
        kind: `line`, `branch` or `toggle`.
        module: Verilog module.
        line: Where it begins in the Verilog.
        column: Likewise.
        name: Its name: of a toggle the signal's bit, and which way.
        lines: Lines that are run with it; none for a toggle.
        instance: Which of the module's instances.
    """

    kind: str
    module: str
    line: int
    column: int
    name: str
    lines: tuple[int, ...]
    instance: str


def read_points(path: Path) -> dict[Point, int]:
    """Return how often each point was met."""
    counts: Counter[Point] = Counter()
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        found = _LINE.match(line)
        if found is None:
            continue
        values = dict(_PAIR.findall(found[1]))
        kind, _, module = values["page"].removeprefix("v_").partition("/")
        point = Point(
            kind=kind,
            module=module,
            line=int(values["l"]),
            column=int(values["n"]),
            name=values.get("o", ""),
            lines=_expand(values.get("S", "")),
            instance=values.get("h", ""),
        )
        counts[point] += int(found[2])
    return dict(counts)


def _expand(text: str) -> tuple[int, ...]:
    """`3-5,8` as numbers."""
    lines: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        lines += range(int(first), int(last or first) + 1)
    return tuple(lines)
