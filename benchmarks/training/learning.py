"""A training under DistributedDataParallel, step by step, with or without a scheme."""

import math
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import afflux
from benchmarks.training.tasks import Task

__all__ = ["Learning"]


class Learning:
    """One rank's part of a training.

    Args:
        task: The task to train.
        words: The scheme; "" if DDP averages as ever.
        seed: Of starting weights and batches; the same at all ranks.
        group: Averages the gradients.
        rank, ranks: Of this process in the group.

    Attributes:
        scheme: The scheme, if there is one.
        losses: Of the own batches, by step.
    """

    def __init__(
        self, task: Task, words: str, seed: int, group: Any, rank: int, ranks: int
    ) -> None:
        self._task, self._seed = task, seed
        self._rank, self._ranks = rank, ranks
        self.losses: list[float] = []
        torch.manual_seed(seed)
        self._model = task.model()
        self._ddp = DistributedDataParallel(self._model, process_group=group)
        self.scheme = afflux.hooks.register(self._ddp, words) if words else None
        self._optimizer = task.optimizer(self._model, 0.0 if "momentum" in words else task.momentum)

    @property
    def elements(self) -> int:
        """How many parameters are averaged."""
        return sum(each.numel() for each in self._model.parameters())

    def step(self) -> None:
        """Learn from one batch of each rank."""
        batch = self._task.batch(self._seed, len(self.losses), self._rank, self._ranks)
        self._optimizer.zero_grad()
        loss = self._ddp(*batch)
        loss.backward()
        self._optimizer.step()
        self.losses.append(loss.item())

    @property
    def lost(self) -> bool:
        """Whether the last loss of this rank is not finite."""
        return bool(self.losses) and not math.isfinite(self.losses[-1])

    def held_out(self) -> float:
        """Return the loss of what is never trained with."""
        batches = self._task.held_out()
        self._model.eval()
        with torch.no_grad():
            mean = sum(float(self._model(*batch)) for batch in batches) / len(batches)
        self._model.train()
        return mean
