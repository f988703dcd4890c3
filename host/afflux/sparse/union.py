"""Which rows any rank has, agreed on by all."""

from typing import Protocol

import numpy as np
import torch

from afflux.sparse.sums import Sums
from afflux_drivers.rows import RowSet, counts_of

__all__ = ["Union", "by_counts", "by_lists"]

_LOW_BITS = 31
"""Of a row number, in one int32."""

_SPREAD = 2048
"""Rows of the whole tensor for each listed one from which sorting beats a bitmap."""


class Union(Protocol):
    """Rows in ascending order."""

    def numbers(self) -> np.ndarray:
        """Return their numbers, as int64. To be called first."""

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        """Return for each of these, which are among them, how many are before it."""


class _Sorted:
    """A union whose rows are few among all: it takes memory for these only."""

    def __init__(self, listed: np.ndarray) -> None:
        self._numbers = np.unique(listed).astype(np.int64)

    def numbers(self) -> np.ndarray:
        return self._numbers

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        return self._numbers.searchsorted(numbers)


def by_lists(ids: torch.Tensor, counts: list[int], rows: int, sums: Sums) -> Union:
    """Return the union from every rank's row numbers.

    Args:
        ids: Own row numbers: sorted, each once, int64.
        counts: How many each rank has.
        rows: Of the whole tensor.
        sums: The group's.
    """
    narrow = rows - 1 >> _LOW_BITS == 0
    low = sums.all_gather((ids & (1 << _LOW_BITS) - 1).to(torch.int32), counts)
    if narrow and rows <= _SPREAD * low.numel():
        union = RowSet(rows)
        union.add(low.numpy())
        return union
    if narrow:
        return _Sorted(low.numpy())
    high = sums.all_gather((ids >> _LOW_BITS).to(torch.int32), counts)
    return _Sorted(((high.to(torch.int64) << _LOW_BITS) + low).numpy())


def by_counts(ids: torch.Tensor, rows: int, sums: Sums) -> Union:
    """Return the union from the sum of fields, of which each counts the ranks with one row.

    Arguments and result are those of `by_lists`.
    """
    counts = torch.from_numpy(counts_of(ids.numpy(), rows, sums.size))
    sums.all_reduce(counts, "sum")
    union = RowSet(rows)
    union.add_counts(counts.numpy(), sums.size)
    return union
