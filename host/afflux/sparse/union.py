"""Which rows any rank has, agreed on by all."""

from typing import Protocol

import numpy as np
import torch

from afflux.sparse.sums import Sums
from afflux_drivers.rows import RowSet, counts_of, list_of, list_words, numbers_of

__all__ = ["Union", "by_counts", "by_lists"]

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
        self._numbers = np.unique(listed)

    def numbers(self) -> np.ndarray:
        return self._numbers

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        return self._numbers.searchsorted(numbers)


def by_lists(ids: torch.Tensor, counts: list[int], rows: int, sums: Sums) -> Union:
    """Return the union from every rank's list of rows.

    Args:
        ids: Own row numbers: sorted, each once, int64.
        counts: How many each rank has.
        rows: Of the whole tensor.
        sums: The group's.
    """
    sizes = [list_words(count, rows) for count in counts]
    own = torch.from_numpy(list_of(ids.numpy(), rows).view(np.int32))
    gathered = sums.all_gather(own, sizes).numpy().view(np.uint32)
    lists = np.split(gathered, np.cumsum(sizes)[:-1])
    if rows > _SPREAD * sum(counts):
        numbers = [numbers_of(*each, rows) for each in zip(lists, counts, strict=True)]
        return _Sorted(np.concatenate(numbers))
    union = RowSet(rows)
    for words, count in zip(lists, counts, strict=True):
        union.add_list(words, count)
    return union


def by_counts(ids: torch.Tensor, rows: int, sums: Sums) -> Union:
    """Return the union from the sum of fields, of which each counts the ranks with one row.

    Arguments and result are those of `by_lists`.
    """
    counts = torch.from_numpy(counts_of(ids.numpy(), rows, sums.size))
    sums.all_reduce(counts, "sum")
    union = RowSet(rows)
    union.add_counts(counts.numpy(), sums.size)
    return union
