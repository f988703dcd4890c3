"""A step of training whose gradients are mostly zero: DDP over a model with a large embedding.

The embedding's gradient is dense, as users have it who did not ask for a sparse one. Rows of words
that no sample had are zero, so that whole blocks are.

A rank's batch has as many words as a share of all rows, the case's density, all equally frequent:
so ranks have hardly a row in common. In texts a few words are most of all, and ranks have these
rows in common: less for Afflux to send. Computing is short beside sending, for a model that
computes for longer than it sends hides everything; each step also passes over the whole embedding
some times, to zero, reduce and apply its gradient, which costs both sides the same, and is measured
apart (`alone_side`).
"""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.report.sides import Side

__all__ = ["alone_side", "step_side"]

_WIDTH = 64
_CLASSES = 16
_SAMPLES = 64
_RATE = 0.01
_TOLERANCE = 1e-4
"""Of the largest gradient of a parameter: what the order of additions may make different."""


class _Model(nn.Module):
    """The mean of the words' rows, then two layers."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.words = nn.Embedding(rows, _WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(_WIDTH, 512), nn.ReLU(), nn.Linear(512, _CLASSES)
        )  # fmt: skip

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return scores of shape (samples, classes)."""
        found: torch.Tensor = self.layers(self.words(words).mean(dim=1))
        return found


def _rows(size: int) -> int:
    return max(1, size // (4 * _WIDTH))


def _samples(rows: int, density: float, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + rank)
    words_of_one = max(1, round(rows * density / _SAMPLES))
    words = torch.randint(rows, (_SAMPLES, words_of_one), generator=generator)
    return words, torch.randint(_CLASSES, (_SAMPLES,), generator=generator)


def _made(rows: int) -> _Model:
    torch.manual_seed(1)
    return _Model(rows)


def _backward(model: nn.Module, samples: tuple[torch.Tensor, torch.Tensor]) -> None:
    words, labels = samples
    nn.functional.cross_entropy(model(words), labels).backward()


def _expected(rows: int, density: float, ranks: int) -> list[torch.Tensor]:
    """Return the mean over ranks of their gradients, made without any communication."""
    model = _made(rows)
    for rank in range(ranks):
        _backward(model, _samples(rows, density, rank))
    return [each.grad.div_(ranks) for each in model.parameters() if each.grad is not None]


def step_side(group: Any, size: int, density: float, rank: int, ranks: int) -> Side:
    """Return a step as users write it: gradients to zero, forward, backward, optimizer.

    Args:
        group: Of DDP.
        size: Bytes of the embedding.
        density: A batch's words, as a share of the embedding's rows.
        rank: Own rank.
        ranks: How many there are.
    """
    rows = _rows(size)
    samples = _samples(rows, density, rank)
    model = _made(rows)
    initial = [each.detach().clone() for each in model.parameters()]
    ddp = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=_RATE)

    def call() -> None:
        optimizer.zero_grad(set_to_none=False)
        _backward(ddp, samples)
        optimizer.step()

    def wrong() -> int:
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), initial, strict=True):
                parameter.copy_(value)
        optimizer.zero_grad(set_to_none=False)
        _backward(ddp, samples)
        count = 0
        got = (each.grad for each in model.parameters() if each.grad is not None)
        for gradient, right in zip(got, _expected(rows, density, ranks), strict=True):
            close = (gradient - right).abs() <= _TOLERANCE * right.abs().max()
            count += int((~close).sum())
        return count

    return Side(call, wrong)


def alone_side(group: Any, size: int, density: float, rank: int) -> Side:
    """Return the same step in which nothing is sent: what computing it takes.

    Args:
        group: Of DDP, which is not used but to make it.
        size: Bytes of the embedding.
        density: A batch's words, as a share of the embedding's rows.
        rank: Own rank.
    """
    rows = _rows(size)
    samples = _samples(rows, density, rank)
    ddp = DistributedDataParallel(_made(rows), process_group=group, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=_RATE)

    def call() -> None:
        optimizer.zero_grad(set_to_none=False)
        with ddp.no_sync():
            _backward(ddp, samples)
        optimizer.step()

    return Side(call, lambda: 0)
