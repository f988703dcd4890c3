"""A long run in which no process ends: what each has, stays as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

__all__ = ["Soak"]

_FEWEST = 8
"""Trials of which a quarter says something."""

_MORE = {"descriptors": 2.0, "threads": 1.0, "rss_kb": 0.03, "aggregator_kb": 0.05}
"""What may be there in the last quarter beyond the second: a number, or a share of memory. Ranks
have links to those that they have met, and allocators keep what they have once had."""


@dataclass
class Soak:
    """What the trials have found, in order.

    Attributes:
        found: Of each trial, the most that one of its processes has between two groups.
    """

    found: list[dict[str, int]] = field(default_factory=list)

    def add(self, record: dict[str, Any]) -> None:
        """Take a trial's record."""
        if "census" in record:
            self.found.append(record["census"])

    def told(self) -> tuple[str, bool]:
        """Return what there was at first and at last, and whether that is flat."""
        if len(self.found) < _FEWEST:
            return f"{len(self.found)} trials are too few to say what grows", True
        quarter = len(self.found) // 4
        second, last = self.found[quarter : 2 * quarter], self.found[-quarter:]
        lines, flat = [], True
        for name, more in _MORE.items():
            before, after = _mean(second, name), _mean(last, name)
            most = before + more if more >= 1 else before * (1 + more)
            word = "flat" if after <= most else "GROWS"
            flat &= after <= most
            lines.append(f"{name}: {before:,.1f} in the second quarter, {after:,.1f} in the last")
            lines[-1] += f": {word}"
        return "\n".join(lines), flat


def _mean(found: Sequence[dict[str, int]], name: str) -> float:
    return mean([each[name] for each in found if name in each] or [0])
