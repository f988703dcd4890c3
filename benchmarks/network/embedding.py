"""A step of training whose gradients are mostly zero: DDP over a model with a large embedding.

The embedding's gradient is dense, as users have it who did not ask for a sparse one. Rows of words
that no sample had are zero, so that whole blocks are.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.report.sides import Side

__all__ = ["step_side"]

_WIDTH = 128
_CLASSES = 16
_SAMPLES, _WORDS = 64, 16
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


def _samples(rows: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + rank)
    words = torch.randint(rows, (_SAMPLES, _WORDS), generator=generator)
    return words, torch.randint(_CLASSES, (_SAMPLES,), generator=generator)


def _made(rows: int) -> _Model:
    torch.manual_seed(1)
    return _Model(rows)


def _backward(model: nn.Module, samples: tuple[torch.Tensor, torch.Tensor]) -> None:
    words, labels = samples
    nn.functional.cross_entropy(model(words), labels).backward()


def _expected(rows: int, ranks: int) -> list[torch.Tensor]:
    """Return the mean over ranks of their gradients, made without any communication."""
    model = _made(rows)
    for rank in range(ranks):
        _backward(model, _samples(rows, rank))
    return [each.grad.div_(ranks) for each in model.parameters() if each.grad is not None]


def step_side(group: Any, size: int, rank: int, ranks: int) -> Side:
    """Return a step as users write it: gradients to zero, forward, backward, optimizer.

    Args:
        group: Of DDP.
        size: Bytes of the embedding.
        rank: Own rank.
        ranks: How many there are.
    """
    rows = max(1, size // (4 * _WIDTH))
    samples = _samples(rows, rank)
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
        for gradient, right in zip(got, _expected(rows, ranks), strict=True):
            close = (gradient - right).abs() <= _TOLERANCE * right.abs().max()
            count += int((~close).sum())
        return count

    return Side(call, wrong)
