"""The contenders of a comparison: Afflux, other backends, and the floors that memory sets."""

import importlib
import importlib.util
import os
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

import afflux

__all__ = [
    "COMPARED",
    "AddOne",
    "Afflux",
    "Contender",
    "Gloo",
    "Mpi",
    "NotAvailable",
    "ReadAll",
    "launched_by_mpi",
    "mpi_missing",
]

COMPARED = ("gloo", "mpi")
"""What --compare takes."""

_REDUCE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}


class NotAvailable(RuntimeError):
    """Something that the options ask for is not available; the message gives the reason."""


class Contender(Protocol):
    """One way to treat a tensor, which all ranks take at the same time.

    Attributes:
        name: Its name in tables and JSON.
    """

    name: str

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a tensor of shape (count,) to work on."""

    def call(self, tensor: torch.Tensor, op: str) -> None:
        """Do it in place, and return when it is over."""


class Afflux:
    """The process group of the backend "afflux".

    Args:
        group: A group of all ranks.
        reachable: Work on tensors that the other ranks can reach.

    Raises:
        NotAvailable: Reachable tensors were asked for, and the ranks share no memory.
    """

    name = "afflux"

    def __init__(self, group: Any, reachable: bool) -> None:
        self._group = group
        self._reachable = reachable
        engine = afflux.statistics(group)["engine"]
        if reachable and engine != "shm":
            raise NotAvailable(f"--reachable: these ranks share no memory; the engine is {engine}")

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a tensor; collective if reachable."""
        if self._reachable:
            return afflux.empty(count, dtype=dtype, group=self._group)
        return torch.empty(count, dtype=dtype)

    def call(self, tensor: torch.Tensor, op: str) -> None:
        """Call it as a user does."""
        dist.all_reduce(tensor, _REDUCE_OPS[op], self._group)


class Gloo:
    """torch's own backend for the CPU. It has no average: a sum, then a division in place."""

    name = "gloo"

    def __init__(self, group: Any) -> None:
        self._group = group
        self._ranks = dist.get_world_size(group)

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make an ordinary tensor."""
        return torch.empty(count, dtype=dtype)

    def call(self, tensor: torch.Tensor, op: str) -> None:
        """Call it as a user does."""
        if op == "avg":
            dist.all_reduce(tensor, dist.ReduceOp.SUM, self._group)
            tensor.div_(self._ranks)
        else:
            dist.all_reduce(tensor, _REDUCE_OPS[op], self._group)


def mpi_missing(ranks: int) -> str:
    """Return why `Mpi` cannot run here; empty if it can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "--compare mpi: the package mpi4py is not installed (pip install mpi4py)"
    try:
        size = importlib.import_module("mpi4py.MPI").COMM_WORLD.Get_size()
    except (ImportError, RuntimeError) as error:
        first, *_ = str(error).splitlines() or [""]
        return f"--compare mpi: mpi4py finds no MPI library here ({first})"
    if size != ranks:
        return (
            f"--compare mpi: MPI knows {size} rank{'s' if size > 1 else ''}, this run has {ranks}: "
            f"start the ranks with MPI, as in `mpirun -n {max(ranks, 2)} afflux bench all_reduce "
            "--compare mpi`"
        )
    return ""


class Mpi:
    """MPI_Allreduce in place, through mpi4py; the average as for Gloo.

    Raises:
        NotAvailable: MPI has no such type, or does not know these ranks.
    """

    name = "mpi"

    def __init__(self, ranks: int, dtype: torch.dtype) -> None:
        if missing := mpi_missing(ranks):
            raise NotAvailable(missing)
        if dtype not in (torch.float32, torch.int32):
            raise NotAvailable(f"--compare mpi: MPI has no type for {dtype}")
        MPI = importlib.import_module("mpi4py.MPI")
        self._in_place = MPI.IN_PLACE
        self._ops = {"sum": MPI.SUM, "avg": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
        self._world = MPI.COMM_WORLD
        self._ranks = ranks

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make an ordinary tensor."""
        return torch.empty(count, dtype=dtype)

    def call(self, tensor: torch.Tensor, op: str) -> None:
        """Call it through the buffer interface, without a copy."""
        self._world.Allreduce(self._in_place, tensor.numpy(), op=self._ops[op])
        if op == "avg":
            tensor.div_(self._ranks)


class AddOne:
    """A floor: every rank adds one to its own tensor, in place."""

    name = "floor"

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make an ordinary tensor."""
        return torch.empty(count, dtype=dtype)

    def call(self, tensor: torch.Tensor, op: str) -> None:
        """Read and write each element once."""
        tensor.add_(1)


class ReadAll:
    """A floor for sparse sums: every rank reads its own tensor, and writes nothing."""

    name = "read_floor"

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make an ordinary tensor."""
        return torch.empty(count, dtype=dtype)

    def call(self, tensor: torch.Tensor, op: str) -> None:
        """Find the greatest word: of the ways to read in numpy and torch, the fastest."""
        np.max(tensor.view(torch.uint8).numpy().view(_word_of(tensor)))


def _word_of(tensor: torch.Tensor) -> type:
    return np.int32 if tensor.element_size() == 4 else np.int16


def launched_by_mpi() -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))
