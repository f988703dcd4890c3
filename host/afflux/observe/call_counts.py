"""How often each collective was called in a group, how much it moved and how long it took."""

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["CallCount", "CallCounts"]


class CallCount(NamedTuple):
    """The calls of one collective by one way.

    Attributes:
        name: The collective.
        way: "engine" or "gloo".
        calls: How many are over, well or not.
        bytes: Of the larger side, in and out, of each.
        nanoseconds: From each one's beginning to its end, waiting for other ranks included.
    """

    name: str
    way: str
    calls: int
    bytes: int
    nanoseconds: int


class CallCounts:
    """The counts of one group. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sources: list[Callable[[], Iterable[CallCount]]] = []

    def add(self, name: str, way: str, size_bytes: int, nanoseconds: int) -> None:
        """Count one call."""
        with self._lock:
            counts = self._counts.get((name, way))
            if counts is None:
                counts = self._counts[name, way] = [0, 0, 0]
            counts[0] += 1
            counts[1] += size_bytes
            counts[2] += nanoseconds

    def include(self, source: Callable[[], Iterable[CallCount]]) -> None:
        """Add what `source` counts by itself, such as calls that never reach Python."""
        self._sources.append(source)

    def all(self) -> list[CallCount]:
        """Return all counts, by name and way."""
        with self._lock:
            sums = {key: list(counts) for key, counts in self._counts.items()}
        for source in self._sources:
            for name, way, *more in source():
                found = sums.setdefault((name, way), [0, 0, 0])
                for index, value in enumerate(more):
                    found[index] += value
        return [CallCount(*key, *counts) for key, counts in sorted(sums.items())]

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return them as `statistics` has them: calls, bytes and seconds, by "<name> <way>"."""
        return {
            f"{count.name} {count.way}": {
                "calls": count.calls,
                "bytes": count.bytes,
                "seconds": count.nanoseconds / 1e9,
            }
            for count in self.all()
        }
