"""The first steps of a sum of which most rows are zeros: the ranks agree on the rows to sum.

1. They tell each other how many rows each has, and the costs of their steps so far: with that all
   of them know in which form the sum travels (`afflux.sparse.kinds`).
2. They agree on the union of the rows, as lists or as counts (`afflux.sparse.index_forms`), unless
   all rows are to be summed.

Each step is one operation of the group.

Tested: `tests/host/test_sparse_steps.py`, `tests/host/test_present_blocks.py`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from afflux.sparse.cost_model import TOLD, carried
from afflux.sparse.index_forms import Form, Rows, StepTraffic
from afflux.sparse.kinds import Kind, Kinds
from afflux.sparse.sums import Sums
from afflux.sparse.union import Union, by_counts, by_lists

__all__ = ["Agreement", "agree", "count_rows", "measured"]


@dataclass(frozen=True)
class Agreement:
    """The rows that the ranks sum; the same at all of them.

    Attributes:
        kind: The group's experience with such sums.
        rows: How many there are.
        form: In which the sum travels.
        union: The rows that any rank has; None if all rows are summed.
    """

    kind: Kind
    rows: Rows
    form: Form
    union: Union | None


def count_rows(count: int, sums: Sums, kinds: Kinds) -> list[int]:
    """Return how many rows each rank has; let `kinds` hear what their steps cost.

    Args:
        count: Own rows.
        sums: The group's.
        kinds: The group's experience.
    """
    # In two words: neither is negative, however many there are.
    told = torch.zeros((sums.size, 2 + TOLD), dtype=torch.int32)
    own = (count >> 31, count & 0x7FFFFFFF, *kinds.costs.told())
    told[sums.rank] = torch.tensor(own, dtype=torch.int32)
    began_s = time.monotonic()
    sums.all_reduce(told, "sum")
    kinds.costs.note(told.nbytes, time.monotonic() - began_s)
    heard = told.tolist()
    kinds.costs.hear([each[2:] for each in heard])
    return [(high << 31) + low for high, low, *_ in heard]


def agree(
    text: str,
    ids: torch.Tensor,
    counts: list[int],
    all_rows: int,
    width: int,
    dtype: torch.dtype,
    reduction: str,
    sums: Sums,
    kinds: Kinds,
    may_be_dense: bool = True,
) -> Agreement:
    """Agree on the rows to sum.

    Args:
        text: Names the kind of sum; the same at all ranks.
        ids: Own row numbers: sorted, each once, int64.
        counts: The result of `count_rows`; not all 0.
        all_rows: Rows of the whole tensor.
        width: Elements of a row.
        dtype: Type of the elements.
        reduction: Of the sum.
        sums: The group's.
        kinds: The group's experience.
        may_be_dense: Whether all rows may be summed, if the union is thought to be nearly all.

    Raises:
        AffluxError: A collective failed.
    """
    kind = kinds.kind(text)
    rows = kind.rows(all_rows, counts, width, dtype.itemsize)
    ways = sums.way(torch.int32, "sum"), sums.way(dtype, reduction)
    form = kinds.choose(text, rows, sums, *ways, may_be_dense)
    if form.name == "dense":
        return Agreement(kind, rows, form, None)
    with measured(form.steps[0], kinds, sums.size):
        lists = form.name == "lists"
        union = by_lists(ids, counts, all_rows, sums) if lists else by_counts(ids, all_rows, sums)
    kind.learn(rows, len(union.numbers()))
    return Agreement(kind, rows, form, union)


@contextmanager
def measured(step: StepTraffic, kinds: Kinds, ranks: int) -> Iterator[None]:
    """Let the group's costs know what a step takes."""
    began_s = time.monotonic()
    yield
    kinds.costs.note(carried(step, ranks), time.monotonic() - began_s)
