"""Which rows any rank has, agreed on by all."""

import torch

from afflux.sparse.sums import Sums
from afflux_drivers.rows import RowSet, counts_of

__all__ = ["LIST_ROWS_MAX", "by_counts", "by_lists"]

LIST_ROWS_MAX = 2**31 - 1
"""Rows of a tensor whose numbers fit the lists' int32."""


def by_lists(ids: torch.Tensor, counts: list[int], rows: int, sums: Sums) -> RowSet:
    """Return the union from every rank's row numbers.

    Args:
        ids: Own row numbers: sorted, each once, int64.
        counts: How many each rank has.
        rows: Of the whole tensor; at most `LIST_ROWS_MAX`.
        sums: The group's.
    """
    union = RowSet(rows)
    union.add(sums.all_gather(ids.to(torch.int32), counts).numpy())
    return union


def by_counts(ids: torch.Tensor, rows: int, sums: Sums) -> RowSet:
    """Return the union from the sum of fields, of which each counts the ranks with one row.

    Arguments and result are those of `by_lists`.
    """
    counts = torch.from_numpy(counts_of(ids.numpy(), rows, sums.size))
    sums.all_reduce(counts, "sum")
    union = RowSet(rows)
    union.add_counts(counts.numpy(), sums.size)
    return union
