"""Starts one training under torchrun and follows it."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from afflux.demo.train import EPOCH_MARK
from afflux.torchrun import run_module

__all__ = ["Run", "train"]


@dataclass
class Run:
    """One finished training.

    Attributes:
        name: Heading of its column.
        url: Its aggregator; empty for Gloo.
        ranks: The output of each rank, in order of rank.
        weights: All weights in one array, float32.
    """

    name: str
    url: str
    ranks: list[dict[str, Any]] = field(default_factory=list)
    weights: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))

    def total(self, statistic: str) -> int:
        """Return the sum over the ranks of a field of `afflux.statistics`."""
        return sum(rank["statistics"][statistic] for rank in self.ranks)

    @property
    def counters(self) -> dict[str, int]:
        """The engine's counters, which started at 0 with this run."""
        return self.ranks[0].get("counters", {})

    @property
    def same_at_all_ranks(self) -> bool:
        """Whether all ranks ended with the same bits."""
        return len({rank["sha256"] for rank in self.ranks}) == 1


def train(
    name: str,
    url: str,
    *,
    ranks: int,
    epochs: int,
    loss: float,
    on_epoch: Callable[[dict[str, Any]], None],
) -> Run:
    """Train once.

    Args:
        name: Heading for the table.
        url: AFFLUX_AGGREGATOR; empty: Gloo.
        ranks: Processes.
        epochs: Passes over the data.
        loss: Share of packets that each rank drops each way.
        on_epoch: Called with epoch, loss and accuracy as they come.

    Raises:
        RanksFailed: A rank failed.
    """
    environment = {}
    if url:
        environment["AFFLUX_AGGREGATOR"] = url
    if loss:
        environment["AFFLUX_TEST_LOSS"] = str(loss)

    def on_line(line: str) -> bool:
        if line.startswith(EPOCH_MARK):
            on_epoch(json.loads(line.removeprefix(EPOCH_MARK)))
            return True
        return False

    arguments = ["--backend", "afflux" if url else "gloo", "--epochs", str(epochs)]
    written, files = run_module("afflux.demo.train", ranks, arguments, environment, on_line)
    return Run(name, url, written, np.load(io.BytesIO(files["weights.npy"])))
