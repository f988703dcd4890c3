"""The measurements of a calibration between shards and Gloo, and estimates for other tensors."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["Point", "Rates"]


class Point(NamedTuple):
    """Seconds that tensors of one size took: the slowest rank's, of the best turn.

    Attributes:
        bytes: Their size.
        dense_s: By shards, all blocks not zero.
        sparse_s: By shards, nearly all blocks zero.
        gloo_s: By Gloo, to which zeros are numbers as others.
    """

    bytes: int
    dense_s: float
    sparse_s: float
    gloo_s: float


class Rates:
    """The outcome of a calibration. The same at all ranks, to the bit.

    Args:
        points: Of each size, in ascending order; at least one.
    """

    def __init__(self, points: Iterable[Sequence[Any]]) -> None:
        self.points = tuple(Point(*each) for each in points)

    def shards_s(self, size: int, density: float) -> float:
        """Return how long shards take for so many bytes, of which this share of blocks is not zero.

        Blocks cost what they cost, so that time is linear between the two that were measured.
        """
        sparse_s = self._at(size, lambda point: point.sparse_s)
        dense_s = max(sparse_s, self._at(size, lambda point: point.dense_s))
        return sparse_s + (dense_s - sparse_s) * density

    def gloo_s(self, size: int) -> float:
        """Return how long Gloo takes for so many bytes."""
        return self._at(size, lambda point: point.gloo_s)

    def _at(self, size: int, seconds: Callable[[Point], float]) -> float:
        """Return the value on the lines through the points, the last of which goes on."""
        points = self.points
        last = points[-1]
        if len(points) == 1 or size <= points[0].bytes:
            # A small tensor takes as long as the smallest that was tried; beyond one point alone
            # a tensor of twice the size takes twice as long.
            return seconds(points[0]) * max(1.0, size / points[0].bytes)
        right = next((n for n, each in enumerate(points) if size <= each.bytes), len(points) - 1)
        low, high = points[right - 1], points[right]
        slope = max(0.0, (seconds(high) - seconds(low)) / (high.bytes - low.bytes))
        if size > last.bytes:
            return seconds(last) + slope * (size - last.bytes)
        return seconds(low) + slope * (size - low.bytes)
