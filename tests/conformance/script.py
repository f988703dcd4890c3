"""A script of the list: a function that every rank runs, and how to run and compare it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["ENDED", "FLOAT_SUM", "Script", "collected", "launched", "refusal", "sample", "script"]

Body = Callable[[int, int, str], Any]
Launch = Callable[[str, int], Any]

FLOAT_SUM = 2e-6
"""Bound for sums of float32, relative to a tensor's greatest magnitude.

Each backend adds in an order of its own; Afflux rounds each block to its largest element's scale.
"""


ENDED = 77
"""Status with which a rank ends that a script ends on purpose."""


@dataclass(frozen=True)
class Script:
    """One row of the list.

    Attributes:
        name: The function's.
        module: Where it stands.
        about: The first line of its docstring.
        body: Called at each rank with rank, world size and the backend's name, in a process whose
            default group is one of this backend; or, if `launched`, called once, with the backend's
            name and the number of ranks, to start processes of its own. Its value is compared.
        bound: Greatest difference of floats, relative to the greatest magnitude in their tensor.
        ranks_min: Fewer do not make sense; a multiple of two always.
        alone: Whether it gets processes of its own, because it changes them or may end them.
        environment: Variables that its processes see.
        ends_a_rank: Whether ranks end in the middle of it, with the status `ENDED`.
        slow: Whether it takes more than about three seconds; the tests leave it out.
        beyond_gloo: Whether Afflux must pass though Gloo does not.
        timeout_s: Timeout of the default group.
        limit_s: Processes that take longer are killed.
        needs: Packages that are not among Afflux's own; without them the row is left out.
    """

    name: str
    module: str
    about: str
    body: Callable[..., Any]
    bound: float = 0.0
    ranks_min: int = 2
    alone: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    ends_a_rank: bool = False
    slow: bool = False
    beyond_gloo: bool = False
    timeout_s: float = 20.0
    limit_s: float = 60.0
    launched: bool = False
    needs: tuple[str, ...] = ()

    @property
    def theme(self) -> str:
        """The last part of its module's name."""
        return self.module.rpartition(".")[2]


_collected: dict[str, Script] = {}


def collected() -> list[Script]:
    """Return the scripts of all modules that were imported, in order."""
    return list(_collected.values())


def _collect(body: Callable[..., Any], how: dict[str, Any]) -> None:
    name = body.__name__
    if name in _collected:
        raise ValueError(f"two scripts are called {name}")
    about = (body.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    alone = how.pop("alone", False) or bool(how.get("environment"))
    _collected[name] = Script(name, body.__module__, about, body, alone=alone, **how)


def script(**how: Any) -> Callable[[Body], Body]:
    """Put a function that every rank runs on the list; `how` are attributes of `Script`."""

    def collect(body: Body) -> Body:
        _collect(body, how)
        return body

    return collect


def launched(**how: Any) -> Callable[[Launch], Launch]:
    """Put a function that starts processes of its own on the list."""

    def collect(body: Launch) -> Launch:
        _collect(body, {"launched": True, **how})
        return body

    return collect


def refusal(action: Callable[[], object], *kinds: type[BaseException]) -> str:
    """Return the name of the first of `kinds` that `action`'s error is one of.

    So that a backend's own class of error compares equal to the class that users catch.

    Raises:
        AssertionError: Nothing was raised.
    """
    expected = kinds or (RuntimeError,)
    try:
        action()
    except expected as error:
        return next(kind.__name__ for kind in expected if isinstance(error, kind))
    raise AssertionError(f"no {expected[0].__name__} was raised")


def sample(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers that differ from rank to rank and are the same in each run."""
    generator = torch.Generator().manual_seed(1000 + rank)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
    high = 2 if dtype is torch.bool else 100
    return torch.randint(0, high, shape, generator=generator).to(dtype)
