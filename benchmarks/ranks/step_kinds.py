"""Small models on groups and meshes of one backend, with a training step as what is timed.

Those of both backends train on the same data from the same parameters, so after as many steps their
parameters must have changed by the same, but for rounding; larger differences are counted as wrong.
"""

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from benchmarks.ranks.session import Session
from benchmarks.report.sides import Side

__all__ = ["KINDS", "Training", "blocks", "width_of"]

_TOLERANCE = 1e-3
"""Of a parameter's change, relative to the largest change of its tensor: sums round differently."""

_MOST_STEPS = 64
"""From the same parameters: they are not trained until they mean nothing."""


def width_of(session: Session) -> int:
    """Return the width of all layers."""
    return 64 if session.quick else 512


def blocks(width: int, layers: int) -> nn.Sequential:
    """Return the same model whenever it is called: pairs of a linear layer and GELU."""
    torch.manual_seed(7)
    return nn.Sequential(
        *itertools.chain.from_iterable((nn.Linear(width, width), nn.GELU()) for _ in range(layers))
    )


@dataclass
class Training:
    """Steps of SGD, checked by what two of them change in the parameters.

    Attributes:
        session: Of this rank.
        backend: The backend whose groups the model uses.
        model: The model to train.
        forward_backward: Makes gradients from data.
        data_of: The owner of the data that it sees: a rank, or any other number that some ranks
        share.
        width: Of the data.
    """

    session: Session
    backend: str
    model: nn.Module
    forward_backward: Callable[[torch.Tensor], None]
    data_of: int
    width: int

    def __post_init__(self) -> None:
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        generator = torch.Generator().manual_seed(self.data_of)
        self._data = torch.randn(8, self.width, generator=generator)
        self._begin = [_local(each).detach().clone() for each in self.model.parameters()]

    def side(self) -> Side:
        """Return what is timed: a step."""
        return Side(self._step, self._wrong, self._restore, batch=_MOST_STEPS)

    def _step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self.forward_backward(self._data)
        self._optimizer.step()

    def _restore(self) -> None:
        with torch.no_grad():
            for each, first in zip(self.model.parameters(), self._begin, strict=True):
                _local(each).copy_(first)

    def _wrong(self) -> int:
        self._restore()
        self._step()
        self._step()
        changes = [
            (_local(each) - first).detach()
            for each, first in zip(self.model.parameters(), self._begin, strict=True)
        ]
        references = self.session.references
        references[self.backend] = changes
        pairs = zip(changes, references.get("gloo", changes), strict=True)
        return sum(_unequal(got, right) for got, right in pairs if right.numel())


def _unequal(got: torch.Tensor, right: torch.Tensor) -> int:
    largest = right.abs().max()
    if not largest > 0:
        # A parameter that is not trained shows nothing.
        return right.numel()
    return int((~((got - right).abs() <= _TOLERANCE * largest)).sum())


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _backward(model: nn.Module, data: torch.Tensor) -> None:
    model(data).square().mean().backward()


def _names(backend: str, *dimensions: str) -> tuple[str, ...]:
    """Name a mesh's dimensions: torch takes meshes of the same ranks and names for one another."""
    return tuple(f"{backend}_{each}" for each in dimensions)


def _fsdp2(session: Session, backend: str) -> Side:
    mesh = DeviceMesh.from_group(
        session.group(backend), "cpu", mesh_dim_names=_names(backend, "shard")
    )
    return _sharded(session, backend, mesh)


def _hsdp(session: Session, backend: str) -> Side:
    half = session.ranks // 2
    places = torch.arange(session.ranks).view(half, 2)
    groups = [
        session.groups(backend, places.t().tolist()),
        session.groups(backend, places.tolist()),
    ]
    mesh = DeviceMesh.from_group(
        groups, "cpu", places, mesh_dim_names=_names(backend, "replicate", "shard")
    )
    return _sharded(session, backend, mesh)


def _sharded(session: Session, backend: str, mesh: DeviceMesh) -> Side:
    width = width_of(session)
    model = blocks(width, 4)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    run = partial(_backward, model)
    return Training(session, backend, model, run, session.rank, width).side()


def _tensor_parallel(session: Session, backend: str) -> Side:
    width = width_of(session)
    mesh = DeviceMesh.from_group(
        session.group(backend), "cpu", mesh_dim_names=_names(backend, "tp")
    )
    model = blocks(width, 4)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    plan |= {"4": ColwiseParallel(), "6": RowwiseParallel()}
    parallel = parallelize_module(model, mesh, plan)
    return Training(session, backend, parallel, partial(_backward, parallel), 0, width).side()


def _pipeline(session: Session, backend: str) -> Side:
    width, rank, ranks = width_of(session), session.rank, session.ranks
    group = session.group(backend)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU())
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, n_microbatches=2 * ranks, loss_fn=nn.MSELoss())
    target = torch.zeros(8 * ranks, width)

    def run(data: torch.Tensor) -> None:
        whole = data.repeat(ranks, 1)
        if rank == 0:
            schedule.step(whole)
        elif rank == ranks - 1:
            schedule.step(target=target)
        else:
            schedule.step()

    return Training(session, backend, model, run, 0, width).side()


def _checkpoint(session: Session, backend: str) -> Side:
    width = width_of(session)
    group = session.group(backend)
    mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=_names(backend, "shard"))
    model = blocks(width, 2)
    fully_shard(model, mesh=mesh)
    state = {"model": dict(model.state_dict())}
    numbers = itertools.count()
    last = session.folder

    def call() -> None:
        nonlocal last
        last = session.folder / f"{backend}-{next(numbers)}"
        save(state, checkpoint_id=last, process_group=group)

    def restore() -> None:
        if session.rank == 0:
            for path in session.folder.glob(f"{backend}-*"):
                shutil.rmtree(path)
        dist.barrier(session.control)

    def wrong() -> int:
        restore()
        call()
        saved = [_local(each).detach().clone() for each in state["model"].values()]
        for each in state["model"].values():
            _local(each).zero_()
        load(state, checkpoint_id=last, process_group=group)
        return sum(
            int((_local(each) != right).sum())
            for each, right in zip(state["model"].values(), saved, strict=True)
        )

    return Side(call, wrong, restore, batch=8)


def _objects(session: Session, backend: str) -> Side:
    """Return what scripts do between epochs: settings from rank 0, everyone's metrics."""
    group, rank, ranks = session.group(backend), session.rank, session.ranks
    metrics = {"rank": rank, "loss": 0.25 * rank, "history": list(range(200))}
    settings: list[Any] = [None]
    found: list[Any] = [None] * ranks

    def call() -> None:
        settings[0] = {"lr": 0.1, "names": ["a", "b"] * 50} if rank == 0 else None
        dist.broadcast_object_list(settings, src=0, group=group)
        dist.all_gather_object(found, metrics, group=group)
        dist.barrier(group)

    def wrong() -> int:
        found[:] = [None] * ranks
        call()
        expected = [{**metrics, "rank": each, "loss": 0.25 * each} for each in range(ranks)]
        return int(settings[0] is None or settings[0]["lr"] != 0.1) + sum(
            each != right for each, right in zip(found, expected, strict=True)
        )

    return Side(call, wrong)


KINDS: dict[str, Callable[[Session, str], Side]] = {
    "fsdp2": _fsdp2,
    "hsdp": _hsdp,
    "tensor_parallel": _tensor_parallel,
    "pipeline": _pipeline,
    "checkpoint": _checkpoint,
    "objects": _objects,
}
"""The function that makes each kind of step, with the groups of a backend."""
