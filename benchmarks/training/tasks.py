"""The trained models: a convolutional network, a language model, and an embedding of words.

Each is small, and its data are real: handwritten digits that come with scikit-learn, and a text
that comes with Python (`corpus`). A model returns its loss. Batches depend on the seed, the step
and the rank alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import torch
from torch import nn

from afflux.demo import digits
from benchmarks.training.corpus import corpus

__all__ = ["TASKS", "Batch", "Task"]

Batch = tuple[torch.Tensor, ...]


class Task(ABC):
    """A model, its data, and how it is trained.

    Attributes:
        name: Value of "task" in rows.
        title: Its name in tables.
        steps: Of one training.
        target: A loss in training, over some steps, to which the time is measured.
        rate: The learning rate.
        momentum: Of the optimiser.
        sparse: Whether gradients of embeddings are sparse tensors.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    steps: ClassVar[int]
    target: ClassVar[float]
    rate: ClassVar[float]
    momentum: ClassVar[float] = 0.0
    sparse: ClassVar[bool] = False

    @abstractmethod
    def model(self) -> nn.Module:
        """Return the model with starting weights of torch's current seed."""

    @abstractmethod
    def batch(self, seed: int, step: int, rank: int, ranks: int) -> Batch:
        """Return what a rank's model gets in a step."""

    @abstractmethod
    def held_out(self) -> Sequence[Batch]:
        """Return what training never sees; the batches count alike."""

    def optimizer(self, model: nn.Module, momentum: float) -> torch.optim.Optimizer:
        """Return what applies averaged gradients.

        Args:
            model: Its parameters are trained.
            momentum: The task's, or 0 if the scheme has it.
        """
        return torch.optim.SGD(model.parameters(), lr=self.rate, momentum=momentum)


@cache
def _digits() -> tuple[Batch, Batch]:
    """Return what is trained with, and what is held out."""
    return digits.training(), digits.held_out()


@cache
def _frequent() -> torch.Tensor:
    """Return how often words come as wrong ones: their own frequency, to the 3/4."""
    return torch.bincount(corpus().training, minlength=corpus().words) ** 0.75


class _Classifier(nn.Module):
    """Layers, and the cross entropy of what they say about images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1024, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of images (samples, 64)."""
        scores = self.layers(images.view(-1, 1, 8, 8))
        return nn.functional.cross_entropy(scores, labels)


class Digits(Task):
    """Handwritten digits; 151,306 parameters."""

    name = "digits"
    title = "convolutional network, digits"
    steps = 300
    target = 0.15
    rate = 0.03
    momentum = 0.9
    _samples = 16

    def model(self) -> nn.Module:
        """See `Task`."""
        return _Classifier()

    def batch(self, seed: int, step: int, rank: int, ranks: int) -> Batch:
        """See `Task`: each epoch in another order, of which ranks take turns."""
        images, labels = _digits()[0]
        of_all = self._samples * ranks
        epoch, number = divmod(step, len(labels) // of_all)
        generator = torch.Generator().manual_seed(1000 * seed + epoch)
        order = torch.randperm(len(labels), generator=generator)
        begin = number * of_all + rank * self._samples
        chosen = order[begin : begin + self._samples]
        return images[chosen], labels[chosen]

    def held_out(self) -> Sequence[Batch]:
        """See `Task`."""
        images, labels = _digits()[1]
        return list(zip(images.chunk(4), labels.chunk(4), strict=True))


class _Language(nn.Module):
    """The next word, by an LSTM over an embedding of the words before."""

    def __init__(self, words: int, width: int, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, sparse=sparse)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.scores = nn.Linear(width, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the loss of passages (samples, words of each)."""
        states, _ = self.lstm(self.embedding(words[:, :-1]))
        return nn.functional.cross_entropy(
            self.scores(states).flatten(0, 1), words[:, 1:].flatten()
        )


class Language(Task):
    """A language model of words."""

    name = "lstm"
    title = "LSTM, text"
    steps = 240
    target = 6.2
    rate = 1.0
    momentum = 0.9
    _width = 96
    _samples = 8
    _length = 16

    def model(self) -> nn.Module:
        """See `Task`."""
        return _Language(corpus().words, self._width, self.sparse)

    def batch(self, seed: int, step: int, rank: int, ranks: int) -> Batch:
        """See `Task`: passages from anywhere."""
        text = corpus().training
        generator = torch.Generator().manual_seed((1000 * seed + step) * ranks + rank)
        begins = torch.randint(len(text) - self._length, (self._samples,), generator=generator)
        return (text[begins.unsqueeze(1) + torch.arange(self._length + 1)],)

    def held_out(self) -> Sequence[Batch]:
        """See `Task`."""
        text = corpus().held_out
        count = len(text) // (self._length + 1)
        passages = text[: count * (self._length + 1)].view(count, -1)
        return [(each,) for each in passages[:320].chunk(8)]


class SparseLanguage(Language):
    """The same with sparse gradients of the embedding, which has no momentum, but longer steps."""

    name = "lstm_sparse"
    title = "LSTM, text, sparse embedding"
    sparse = True

    def optimizer(self, model: nn.Module, momentum: float) -> torch.optim.Optimizer:
        """See `Task`."""
        rare = [each for name, each in model.named_parameters() if "embedding" in name]
        others = [each for name, each in model.named_parameters() if "embedding" not in name]
        # The sum of momentum in the long run.
        longer = self.rate / (1.0 - self.momentum)
        groups: list[dict[str, Any]] = [
            {"params": rare, "lr": longer, "momentum": 0.0},
            {"params": others},
        ]
        return torch.optim.SGD(groups, lr=self.rate, momentum=momentum)


class _Bag(nn.Module):
    """A word by the mean of the words around it, told from words at random (word2vec's CBOW)."""

    def __init__(self, words: int, width: int, sparse: bool) -> None:
        super().__init__()
        self.around = nn.EmbeddingBag(words, width, mode="mean", sparse=sparse)
        self.centre = nn.Embedding(words, width, sparse=sparse)
        nn.init.uniform_(self.around.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.centre.weight)

    def forward(self, around: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Return the loss of words (samples, around) and (samples, candidates), the right first."""
        fit = (self.centre(candidates) @ self.around(around).unsqueeze(2)).squeeze(2)
        right = torch.zeros_like(fit)
        right[:, 0] = 1.0
        return (
            nn.functional.binary_cross_entropy_with_logits(fit, right, reduction="none")
            .sum(1)
            .mean()
        )


class Bag(Task):
    """An embedding of words: two tables, nothing else."""

    name = "bag"
    title = "embedding of words, text"
    steps = 400
    target = 2.6
    rate = 0.1
    sparse = True
    _width = 128
    _samples = 64
    _reach = 4
    _wrong = 8

    def model(self) -> nn.Module:
        """See `Task`."""
        return _Bag(corpus().words, self._width, self.sparse)

    def batch(self, seed: int, step: int, rank: int, ranks: int) -> Batch:
        """See `Task`: words from anywhere, and wrong ones by their frequency to the 3/4."""
        generator = torch.Generator().manual_seed((1000 * seed + step) * ranks + rank)
        return self._drawn(corpus().training, self._samples, generator)

    def held_out(self) -> Sequence[Batch]:
        """See `Task`."""
        generator = torch.Generator().manual_seed(7)
        return [self._drawn(corpus().held_out, 512, generator) for _ in range(8)]

    def optimizer(self, model: nn.Module, momentum: float) -> torch.optim.Optimizer:
        """See `Task`: Adagrad, as is usual for embeddings; without gradient, no step."""
        return torch.optim.Adagrad(model.parameters(), lr=self.rate)

    def _drawn(self, text: torch.Tensor, samples: int, generator: torch.Generator) -> Batch:
        reach = self._reach
        at = torch.randint(reach, len(text) - reach, (samples, 1), generator=generator)
        offsets = torch.cat([torch.arange(-reach, 0), torch.arange(1, reach + 1)])
        wrong = torch.multinomial(
            _frequent(), samples * self._wrong, replacement=True, generator=generator
        ).view(samples, -1)
        return text[at + offsets], torch.cat([text[at], wrong], dim=1)


class DenseBag(Bag):
    """The same with dense gradients, nearly all of which are zeros: what schemes can take."""

    name = "bag_dense"
    title = "embedding of words, text, dense gradients"
    sparse = False


TASKS: dict[str, Task] = {
    each.name: each for each in (Digits(), Language(), SparseLanguage(), Bag(), DenseBag())
}
