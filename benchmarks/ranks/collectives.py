"""The collectives that Afflux does itself, as users call them, beside Gloo, MPI and a memcpy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from afflux.commands.bench import contenders
from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.collectives import Trial, prepare
from afflux.commands.bench.inputs import Inputs
from afflux.commands.bench.registry import Row
from benchmarks.ranks.comparison import compare
from benchmarks.ranks.family import Family, FamilyCase
from benchmarks.ranks.session import BACKENDS, Session
from benchmarks.report.sides import Side

__all__ = [
    "BESIDE_MPI",
    "COLLECTIVE_CALLS",
    "NATIVE",
    "SIZE_TITLES",
    "CollectiveCall",
]

_SIZES = {"1K": 1 << 10, "256K": 256 << 10, "16M": 16 << 20}
"""Of the larger buffer, in bytes."""

SIZE_TITLES = {"1K": "1 KB", "256K": "256 KB", "16M": "16 MB"}

_WANTED = {"1K": 3.0, "256K": 2.0, "16M": 1.5}
_RANKS = (2, 4)
_COALESCED = 4
"""Tensors in a coalesced call."""


@dataclass(frozen=True)
class CollectiveCall:
    """A way to call a collective.

    Attributes:
        name: As torch.distributed calls it, mostly.
        collective: One of `COLLECTIVES`.
        dtype: Of the elements.
        form: "single", "list" (of the parts of the larger buffer) or "coalesced".
    """

    name: str
    collective: str
    dtype: torch.dtype = torch.float32
    form: str = "single"


COLLECTIVE_CALLS = (
    CollectiveCall("all_reduce", "all_reduce"),
    CollectiveCall("all_reduce_int64", "all_reduce", torch.int64),
    CollectiveCall("all_reduce_coalesced", "all_reduce", form="coalesced"),
    CollectiveCall("broadcast", "broadcast"),
    CollectiveCall("all_gather", "all_gather", form="list"),
    CollectiveCall("all_gather_into_tensor", "all_gather"),
    CollectiveCall("all_gather_coalesced", "all_gather", form="coalesced"),
    CollectiveCall("reduce_scatter", "reduce_scatter", form="list"),
    CollectiveCall("reduce_scatter_tensor", "reduce_scatter"),
    CollectiveCall("reduce_scatter_coalesced", "reduce_scatter", form="coalesced"),
    CollectiveCall("barrier", "barrier"),
)


class _Lists:
    """A group of torch whose parts are given as lists."""

    def __init__(self, contender: Any) -> None:
        self.name: str = contender.name
        self.of_engine: bool = contender.of_engine
        self.empty = contender.empty
        self._group = contender.group
        # Users have their list; making it does not belong to the call.
        self._parts: list[torch.Tensor] = []

    def _parts_of(self, whole: torch.Tensor) -> list[torch.Tensor]:
        if not self._parts:
            self._parts = list(whole.chunk(dist.get_world_size(self._group)))
        return self._parts

    def all_gather(self, output: torch.Tensor, part: torch.Tensor) -> None:
        dist.all_gather(self._parts_of(output), part, group=self._group)

    def reduce_scatter(self, part: torch.Tensor, whole: torch.Tensor, op: str) -> None:
        assert op == "sum"
        dist.reduce_scatter(part, self._parts_of(whole), group=self._group)


def _contender(session: Session, name: str, dtype: torch.dtype) -> Any:
    if name == "mpi":
        return contenders.Mpi(session.ranks, dtype)
    group = session.group(name)
    return contenders.Gloo(group) if name == "gloo" else contenders.Afflux(group, False)


def _side(session: Session, call: CollectiveCall, size: int, name: str) -> Side:
    contender = _contender(session, name, call.dtype)
    collective = COLLECTIVES[call.collective]
    in_place = collective.copies
    tensors = _COALESCED if call.form == "coalesced" else 1
    count = collective.count(size // tensors, call.dtype.itemsize, session.ranks)
    trials: list[Trial] = []
    for number in range(tensors):
        inputs = Inputs(count, call.dtype, session.ranks, seed=number)
        of_call: Any = _Lists(contender) if call.form == "list" else contender
        trials.append(prepare(collective, of_call, inputs, "sum", session.rank, in_place))
    calls = [trial.call for trial in trials]
    called: Callable[[], object] = calls[0]
    if call.form == "coalesced":

        def called() -> None:
            with _coalescing_manager(contender.group):
                for each in calls:
                    each()

    def restore() -> None:
        for trial in trials:
            trial.restore()

    def wrong() -> int:
        restore()
        called()
        return sum(trial.check() for trial in trials)

    return Side(called, wrong, restore, trials[0].batch)


def _measure(call: CollectiveCall, label: str, others: tuple[str, ...], session: Session) -> Row:
    collective = COLLECTIVES[call.collective]
    size = _SIZES[label] if collective.sized else 0
    if session.quick:
        size = min(size, _SIZES["1K"])
    floors: dict[str, Callable[[], object]] = {}
    moved = round(size * collective.bus_factor(session.ranks))
    if moved:
        here, there = (torch.zeros(moved, dtype=torch.uint8) for _ in range(2))
        floors["floor"] = partial(there.copy_, here)
    row: Row = {"what": call.name, "bytes": size, "size": label if collective.sized else ""}
    row |= {"dtype": str(call.dtype).removeprefix("torch."), "floor_bytes": moved}
    makes = {name: partial(_side, session, call, size, name) for name in (*BACKENDS, *others)}
    return row | compare(session, makes, floors)


def _cases(
    calls: tuple[CollectiveCall, ...], others: tuple[str, ...], of_mpi: dict[str, float]
) -> tuple[FamilyCase, ...]:
    found = []
    for call in calls:
        for label in _SIZES if COLLECTIVES[call.collective].sized else ("",):
            named, size = (f"{call.name}_{label}", label) if label else (call.name, "1K")
            title = f"{call.name}, {SIZE_TITLES[label]}" if label else call.name
            measure = partial(_measure, call, size, others)
            wanted = dict.fromkeys(_RANKS, _WANTED[size])
            found.append(FamilyCase(named, title, measure, wanted, of_mpi.get(named)))
    return tuple(found)


NATIVE = Family("collectives", _cases(COLLECTIVE_CALLS, (), {}))

BESIDE_MPI = Family(
    "mpi",
    _cases(
        tuple(each for each in COLLECTIVE_CALLS if each.form == "single"),
        ("mpi",),
        {"all_reduce_1K": 1.0, "barrier": 1.0},
    ),
    with_mpi=True,
)
