"""The choice of a sparse sum's form, and the group's experience with sums of its kind."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from afflux.sparse.cost_model import Costs
from afflux.sparse.index_forms import Form, Rows, forms, random_union
from afflux.sparse.sums import Sums, Way

__all__ = ["Kind", "Kinds"]

_log = logging.getLogger("afflux")

_KINDS_MAX = 4096
"""Kinds of tensors that are remembered; a training loop has some."""

_MEMORY_TIMES = 2
"""All rows are summed only if that takes no more memory than so many times those of the union …"""

_SMALL_BYTES = 64 << 10
"""… or no more than this."""


@dataclass
class Kind:
    """The experience with sparse sums of one shape, dtype and reduction; the same at all ranks.

    Attributes:
        overlap: Rows of the last union, times as many as there would be if each rank had its rows
            at random places: less than 1 if the ranks have the same ones.
        calls: By form.
        latest: Of the last call, for `afflux.statistics`.
    """

    overlap: float = 1.0
    calls: Counter[str] = field(default_factory=Counter)
    latest: dict[str, Any] = field(default_factory=dict)

    def rows(self, rows: int, present: list[int], width: int, element_bytes: int) -> Rows:
        """Return what is known of the next sum."""
        found = tuple(present)
        union = random_union(rows, found) * self.overlap
        return Rows(rows, found, min(max(union, *found), rows), width, element_bytes)

    def learn(self, rows: Rows, union: int) -> None:
        """Take the number of rows of a union that all ranks have found."""
        random = random_union(rows.all, rows.present)
        self.overlap = union / random if random else 1.0


class Kinds:
    """A group's sparse sums, by kind, and what they cost.

    Args:
        ranks: Of the group.
    """

    def __init__(self, ranks: int) -> None:
        self.costs = Costs(ranks)
        self._kinds: dict[str, Kind] = {}

    def kind(self, text: str) -> Kind:
        """Return what is known of a kind, for its next sum."""
        if text not in self._kinds and len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        return self._kinds.setdefault(text, Kind())

    def choose(
        self,
        text: str,
        rows: Rows,
        sums: Sums,
        indices: Way,
        values: Way,
        may_be_dense: bool = True,
    ) -> Form:
        """Return the form of a sum, and log why; the same at all ranks.

        Lists and counts are chosen by time, all rows in place of the union's by bytes.
        """
        found = forms(rows, indices, values)
        dense = found[-1]
        row_sparse = self.costs.least(found[:-1])
        form = row_sparse
        row_bytes = rows.width * rows.element_bytes
        fits = rows.all <= _MEMORY_TIMES * rows.union or rows.all * row_bytes <= _SMALL_BYTES
        if may_be_dense and fits and self.costs.bytes(dense) <= self.costs.bytes(row_sparse):
            form = dense
        kind = self.kind(text)
        kind.calls[form.name] += 1
        expected = self.costs.milliseconds(form)
        kind.latest = {
            "form": form.name,
            "density": max(rows.present) / rows.all,
            "union": rows.union / rows.all,
            "overlap": kind.overlap,
            "index_bytes": form.index_bytes,
            "value_bytes": form.value_bytes,
            "expected_ms": expected,
        }
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s", text, self._words(rows, found, form, kind))
        return form

    def statistics(self) -> dict[str, Any]:
        """Return what is known, by kind; any thread may ask, also beside a sum."""
        # In one go: a sum in another thread may add a kind between two of them.
        known = list(self._kinds.items())
        return {text: {"calls": dict(kind.calls), **kind.latest} for text, kind in known}

    def _words(self, rows: Rows, found: tuple[Form, ...], form: Form, kind: Kind) -> str:
        sizes = []
        for each in found:
            expected = self.costs.milliseconds(each)
            time = "" if expected is None else f", {expected:.3g} ms"
            sizes.append(f"{each.name} {each.index_bytes} + {each.value_bytes} bytes{time}")
        return (
            f"{form.name}, of {'; '.join(sizes)}; the ranks have {rows.present} of {rows.all} "
            f"rows, the union is thought to have {rows.union:.0f}, {kind.overlap:.2f} of a random "
            f"one; a step takes {self.costs.latency_us} us, and then {self.costs.rate} bytes a ms"
        )
