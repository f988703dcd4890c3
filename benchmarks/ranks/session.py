"""A case's groups while ranks run: those of both backends, made when they are first asked for."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from afflux.group_statistics import group_of
from benchmarks.report.control import Control

__all__ = ["BACKENDS", "Session", "new_group"]

BACKENDS = ("afflux", "gloo")

_TIMEOUT_S = 30.0
"""Of the groups that are measured: what hangs is named after this time, and the run goes on."""


@dataclass
class Session(Control):
    """One rank of a family's run.

    Attributes:
        folder: Of this run; all ranks see the same.
        quick: Only show that it works.
        references: The references for the results of a case's contenders, by contender.
    """

    folder: Path
    quick: bool
    references: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    _groups: dict[tuple[str, tuple[tuple[int, ...], ...]], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def group(self, backend: str) -> Any:
        """Return the group of all ranks. Collective the first time."""
        return self.groups(backend, [range(self.ranks)])

    def groups(self, backend: str, members: Sequence[Sequence[int]]) -> Any:
        """Return the one of several disjoint groups in which this rank is. Collective, as above."""
        key = backend, tuple(tuple(each) for each in members)
        if key not in self._groups:
            self._groups[key] = None
            for ranks in members:
                made = new_group(backend, ranks)
                if self.rank in ranks:
                    self._groups[key] = made
        return self._groups[key]

    def called(self, backend: str) -> int:
        """Return how many operations this rank has asked a backend's groups for, so far."""
        groups = [made for (name, _), made in self._groups.items() if name == backend and made]
        if backend == "afflux":
            cores = [group_of(each) for each in groups]
            return sum(each.sequence + sum(each.gloo_counts().values()) for each in cores)
        return sum(each._get_sequence_number_for_group() for each in groups)

    def renew(self, backend: str) -> None:
        """Forget all groups of a backend, as one may have failed. All ranks must do so."""
        for key in [key for key in self._groups if key[0] == backend]:
            # It may not end well either.
            with contextlib.suppress(Exception):
                dist.destroy_process_group(self._groups.pop(key))
            self._groups.pop(key, None)


def new_group(backend: str, ranks: Sequence[int]) -> Any:
    """Make a group as users do."""
    return dist.new_group(list(ranks), backend=backend, timeout=timedelta(seconds=_TIMEOUT_S))
