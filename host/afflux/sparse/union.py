"""Which rows any rank has, agreed on by all."""

import torch

from afflux.sparse.index_forms import count_bits, fields_per_word
from afflux.sparse.sums import Sums

__all__ = ["LIST_ROWS_MAX", "by_counts", "by_lists", "positions"]

LIST_ROWS_MAX = 2**31 - 1
"""Rows of a tensor whose numbers fit the lists' int32."""

_MARKED = 64
"""Rows of the whole tensor for each listed one up to which marking beats sorting."""


def by_lists(ids: torch.Tensor, counts: list[int], rows: int, sums: Sums) -> torch.Tensor:
    """Return the union from every rank's row numbers.

    Args:
        ids: Own row numbers: sorted, each once, int64.
        counts: How many each rank has.
        rows: Of the whole tensor; at most `LIST_ROWS_MAX`.
        sums: The group's.

    Returns:
        Row numbers of the union: sorted, each once, int64.
    """
    listed = sums.all_gather(ids.to(torch.int32), counts)
    if rows > _MARKED * listed.numel():
        return torch.unique(listed).to(torch.int64)
    marks = torch.zeros(rows, dtype=torch.bool)
    marks[listed.to(torch.int64)] = True
    return marks.nonzero().view(-1)


def by_counts(ids: torch.Tensor, rows: int, sums: Sums) -> torch.Tensor:
    """Return the union from the sum of fields, of which each counts the ranks with one row.

    Arguments and result are those of `by_lists`.
    """
    bits, fields = count_bits(sums.size), fields_per_word(sums.size)
    words = -(-rows // fields)
    # Field f of word w is row f * words + w: rows next to each other lie in words next to each
    # other, and taking the fields apart is one pass for each.
    counts = torch.zeros(words, dtype=torch.int32)
    field = torch.div(ids, words, rounding_mode="floor")
    # Each row once, so no two of one field and word: to add is to set the bits.
    counts.index_add_(0, ids - field * words, (1 << (field * bits)).to(torch.int32))
    sums.all_reduce(counts, "sum")
    found = []
    mask = (1 << bits) - 1
    for number in range(fields):
        present = (counts >> (number * bits)).bitwise_and_(mask).nonzero().view(-1)
        found.append(present + number * words)
    return torch.cat(found)


def positions(ids: torch.Tensor, union: torch.Tensor) -> torch.Tensor:
    """Return where each of the own rows lies in the union."""
    return torch.searchsorted(union, ids)
