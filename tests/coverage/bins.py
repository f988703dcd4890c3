"""Bins of functional coverage: dimensions, crosses of them, and the impossible part of a cross.

A bin that cannot be is excluded by a rule with its reason, never because no run has reached it. One
that is excluded and reached all the same is an error in the rule, and is reported.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

__all__ = ["Cross", "Exclusion", "Model", "Sample"]

Sample = Mapping[str, str]
"""The value of each dimension that was looked at, by the dimension's name."""


@dataclass(frozen=True)
class Exclusion:
    """Bins that cannot be.

    Attributes:
        reason: Why.
        excludes: Says of a bin, as a sample of the cross's dimensions, whether it is one of them.
    """

    reason: str
    excludes: Callable[[Sample], bool]


@dataclass(frozen=True)
class Cross:
    """All combinations of the values of some dimensions, but for those that cannot be.

    Attributes:
        name: As it stands in the report.
        dimensions: Names of the dimensions.
        exclusions: Impossible bins.
    """

    name: str
    dimensions: tuple[str, ...]
    exclusions: tuple[Exclusion, ...] = ()


@dataclass
class CrossReport:
    """The outcome of a cross: bins in all, reached ones, names of the others, and the excluded."""

    bins: int
    reached: int
    missed: list[str]
    excluded: dict[str, int]
    contradicted: list[str]

    @property
    def share(self) -> float:
        """Reached ones of all."""
        return self.reached / self.bins


@dataclass
class Model:
    """Dimensions and crosses, and how often each bin was reached.

    Attributes:
        dimensions: The values of each dimension.
        crosses: The crosses.

    Raises:
        ValueError: From `add`, if a sample has a value that its dimension does not have.
    """

    dimensions: Mapping[str, Sequence[str]]
    crosses: Sequence[Cross]
    _counts: dict[str, Counter[tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._counts = {cross.name: Counter() for cross in self.crosses}

    def add(self, sample: Sample) -> None:
        """Count a sample in every cross of whose dimensions it has all."""
        for name, value in sample.items():
            if value not in self.dimensions[name]:
                raise ValueError(f"dimension {name!r} has no value {value!r}")
        for cross in self.crosses:
            if all(name in sample for name in cross.dimensions):
                key = tuple(sample[name] for name in cross.dimensions)
                self._counts[cross.name][key] += 1

    def report(self, cross: Cross) -> CrossReport:
        """Return what became of a cross."""
        counts = self._counts[cross.name]
        bins, missed, contradicted = 0, [], []
        excluded: Counter[str] = Counter()
        for key in product(*(self.dimensions[name] for name in cross.dimensions)):
            sample = dict(zip(cross.dimensions, key, strict=True))
            rule = next((each for each in cross.exclusions if each.excludes(sample)), None)
            if rule is None:
                bins += 1
                if not counts[key]:
                    missed.append(" × ".join(key))
            else:
                excluded[rule.reason] += 1
                if counts[key]:
                    contradicted.append(f"{' × '.join(key)}: {rule.reason}")
        return CrossReport(bins, bins - len(missed), missed, dict(excluded), contradicted)

    def figures(self) -> dict[str, Any]:
        """Return all reports and their sum, for programs."""
        reports = {cross.name: self.report(cross) for cross in self.crosses}
        bins = sum(each.bins for each in reports.values())
        reached = sum(each.reached for each in reports.values())
        return {
            "bins": bins,
            "reached": reached,
            "share": round(reached / bins, 4),
            "contradicted": [text for each in reports.values() for text in each.contradicted],
            "crosses": {name: vars(each) for name, each in reports.items()},
        }
