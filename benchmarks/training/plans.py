"""Which trainings are run: models by schemes by seeds."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afflux.scheme_words import COMPRESSORS, SELECTORS
from benchmarks.training.tasks import TASKS

__all__ = ["DENSE", "Run", "bare", "runs"]

DENSE = ""
"""The words of no scheme: DDP averages as ever."""

_SEEDS = (1, 2, 3)

_WARM_UP = "warmup:densities=0.25/0.0625,steps=15"

_LOSSY = (
    "fp16",
    "bf16",
    "int8",
    "int4",
    "topk:density=0.1",
    "topk:density=0.01",
    "gtopk:density=0.1",
    "gtopk:density=0.01",
    "gtopk:density=0.001",
    "blocktopk:density=0.1",
    "randomk:density=0.1",
)
"""For all models."""

_MORE = (
    "topk:density=0.001",
    "topk:density=0.01+feedback:on=off",
    "blocktopk:density=0.1+int8",
    "gtopk:density=0.01+feedback:on=off",
    f"gtopk:density=0.001+{_WARM_UP}",
    "blocktopk:density=0.01",
    "randomk:density=0.01",
    "randomk:density=0.1,scaled=on",
    "threshold:bound=0.001",
    "powersgd:rank=4",
    "int12",
    "int4+feedback:on=off",
)
"""For models that are trained fast enough for many."""

_MOMENTUM = (
    "gtopk:density=0.1+momentum",
    "gtopk:density=0.01+momentum",
    "gtopk:density=0.001+momentum",
    f"gtopk:density=0.001+momentum+{_WARM_UP}",
    "topk:density=0.01+momentum",
)
"""For models whose optimiser has momentum, which the scheme then has in its place."""

_OF_TASK: Mapping[str, Sequence[str]] = {
    "digits": (*_LOSSY, *_MORE, *_MOMENTUM),
    "lstm": (*_LOSSY, *_MOMENTUM[1:4], "topk:density=0.01+feedback:on=off"),
    "lstm_sparse": ("gtopk:density=0.01",),
    "bag": (),
    "bag_dense": (*_LOSSY, "topk:density=0.01+feedback:on=off", "blocktopk:density=0.01"),
}

_SEEDS_OF_SCHEMES = {"digits": _SEEDS[:1]}
"""Of trainings with a scheme; one seed if none are given."""

_SEEDS_OF_NONE = {"lstm_sparse": _SEEDS[:1], "bag_dense": _SEEDS[:1]}
"""Of trainings without a scheme, where the same model has another name."""


@dataclass(frozen=True)
class Run:
    """A training.

    Attributes:
        task: The task to train; of `benchmarks.training.tasks`.
        scheme: The words of the scheme; "" if DDP averages as ever.
        seed: Of starting weights and batches.
    """

    task: str
    scheme: str
    seed: int


def bare(scheme: str) -> set[str]:
    """Return the words of a scheme without their options."""
    return {part.partition(":")[0] for part in scheme.split("+")}


def runs(tasks: Sequence[str] = (), schemes: Sequence[str] = ()) -> list[Run]:
    """Return what is to be trained, by task.

    Args:
        tasks: Names; all if empty.
        schemes: Only schemes with one of these words, and none; all if empty.
    """
    found = []
    for task in tasks or TASKS:
        found += [Run(task, DENSE, seed) for seed in _SEEDS_OF_NONE.get(task, _SEEDS)]
        # Sums of everything by a scheme are the same, and can be counted.
        chosen = ["float32", *_known(_OF_TASK[task])]
        if task == "digits":
            chosen += _unnamed(chosen)
        for scheme in chosen:
            if schemes and scheme != "float32" and not bare(scheme) & set(schemes):
                continue
            several = _SEEDS_OF_SCHEMES.get(task, _SEEDS[:1])
            seeds = _SEEDS[:1] if scheme == "float32" else several
            found += [Run(task, scheme, seed) for seed in seeds]
    return found


def _known(schemes: Sequence[str]) -> list[str]:
    """Return the schemes whose words there are."""
    words = {*COMPRESSORS, *SELECTORS, "feedback", "momentum", "warmup"}
    return [scheme for scheme in schemes if bare(scheme) <= words]


def _unnamed(schemes: Sequence[str]) -> list[str]:
    """Return words that no scheme has, and that need no options: new ones are shown too."""
    named = set().union(*map(bare, schemes))
    return [
        word
        for word, make in {**SELECTORS, **COMPRESSORS}.items()
        if word not in named
        and all(
            each.default is not inspect.Parameter.empty
            for each in inspect.signature(make).parameters.values()
        )
    ]
