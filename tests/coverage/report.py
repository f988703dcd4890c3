"""The engine's coverage, by stage: figures, unmet lines, the Verilog with counts."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.coverage.points import Point

__all__ = ["Report", "Share", "stage_of_module"]

_OF_THE_WRITER = re.compile(r"verilog_backend\.cc:\d+:dump_module")
"""An empty decision by which yosys has simulators evaluate each procedure at their start."""


@dataclass
class Share:
    """Of so many points so many were met."""

    met: int = 0
    all: int = 0

    def add(self, met: bool) -> None:
        self.met += met
        self.all += 1

    def __str__(self) -> str:
        return f"{self.met / self.all:7.1%} of {self.all:>6}" if self.all else f"{'–':>17}"


@dataclass
class StageShares:
    """Figures of one stage.

    Attributes:
        lines: Lines of Verilog in procedures, each an assignment or the like.
        branches: Branches of its decisions, those without a line of their own too.
        toggles: Bits of its signals, each of which should rise and fall.
    """

    lines: Share = field(default_factory=Share)
    branches: Share = field(default_factory=Share)
    toggles: Share = field(default_factory=Share)


def stage_of_module(module: str) -> str:
    """Return the engine's part that a Verilog module belongs to."""
    if module.startswith("afflux_ram"):
        return "ram"
    parts = module.split(".")
    return parts[2] if len(parts) > 2 else "engine"


class Report:
    """The result of the points of one build.

    Args:
        verilog: Its text.
        counts: How often each point was met.
    """

    def __init__(self, verilog: str, counts: Mapping[Point, int]) -> None:
        self._text = verilog.splitlines()
        self._modules = _modules_of(self._text)
        self.stages: defaultdict[str, StageShares] = defaultdict(StageShares)
        self._line_counts: dict[int, int] = {}
        self._idle_bits: defaultdict[str, list[str]] = defaultdict(list)
        for point, count in counts.items():
            stage = stage_of_module(self._modules[point.line - 1])
            if point.kind == "toggle":
                self.stages[stage].toggles.add(count > 0)
                if not count:
                    self._idle_bits[stage].append(point.name)
                continue
            if _OF_THE_WRITER.search(self._text[point.line - 1]):
                continue
            if point.kind == "branch":
                self.stages[stage].branches.add(count > 0)
            for line in point.lines:
                if _OF_THE_WRITER.search(self._text[line - 1]):
                    continue
                self._line_counts[line] = max(self._line_counts.get(line, 0), count)
        for line, count in self._line_counts.items():
            self.stages[stage_of_module(self._modules[line - 1])].lines.add(count > 0)

    def total(self, what: str) -> Share:
        """Return the figures of all stages together: of `lines`, `branches` or `toggles`."""
        shares = [getattr(stage, what) for stage in self.stages.values()]
        return Share(sum(share.met for share in shares), sum(share.all for share in shares))

    def unmet_lines(self) -> list[str]:
        """Return the lines that no check has run, each with its module and what it depends on."""
        found = []
        for line, count in sorted(self._line_counts.items()):
            if not count:
                module = self._modules[line - 1]
                path = " > ".join(self._conditions(line))
                found.append(f"{module}:{line}: {path}: {self._text[line - 1].strip()}")
        return found

    def table(self) -> str:
        """Return the figures for people."""
        rows = [f"{'stage':<16}{'lines':>18}{'branches':>20}{'toggled bits':>20}"]
        for name, stage in sorted(self.stages.items()):
            rows.append(f"{name:<16}{stage.lines!s:>18}{stage.branches!s:>20}{stage.toggles!s:>20}")
        totals = [self.total(what) for what in ("lines", "branches", "toggles")]
        rows.append(f"{'all':<16}{totals[0]!s:>18}{totals[1]!s:>20}{totals[2]!s:>20}")
        return "\n".join(rows)

    def figures(self) -> dict[str, Any]:
        """Return the same for programs."""
        return {
            "all": {what: asdict(self.total(what)) for what in ("lines", "branches", "toggles")},
            "stages": {name: asdict(stage) for name, stage in sorted(self.stages.items())},
        }

    def write(self, folder: Path) -> None:
        """Write `summary.json`, `unmet_lines.txt`, `idle_bits.txt` and `engine.v`."""
        folder.mkdir(parents=True, exist_ok=True)
        summary = json.dumps(self.figures(), indent=1)
        (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
        lines = "".join(f"{line}\n" for line in self.unmet_lines())
        (folder / "unmet_lines.txt").write_text(lines, encoding="utf-8")
        bits = "".join(
            f"{stage}: {name}\n"
            for stage, names in sorted(self._idle_bits.items())
            for name in sorted(names)
        )
        (folder / "idle_bits.txt").write_text(bits, encoding="utf-8")
        annotated = [
            f"{self._line_counts.get(number, ''):>10} {line}"
            for number, line in enumerate(self._text, start=1)
        ]
        (folder / "engine.v").write_text("\n".join(annotated) + "\n", encoding="utf-8")

    def _conditions(self, line: int) -> list[str]:
        """Return what stands before the blocks around a line, outermost first."""
        found = []
        depth = _indent(self._text[line - 1])
        for text in reversed(self._text[: line - 1]):
            if text.strip() and _indent(text) < depth:
                depth = _indent(text)
                found.append(re.sub(r"\bbegin\b|\bend\b", "", text).strip())
                if text.lstrip().startswith("always"):
                    break
        return found[::-1]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _modules_of(text: list[str]) -> list[str]:
    """Name of the module that each line is in."""
    names, name = [], ""
    for line in text:
        found = re.match(r"module \\?(\S+)", line)
        if found:
            name = found[1].partition("(")[0]
        names.append(name)
    return names
