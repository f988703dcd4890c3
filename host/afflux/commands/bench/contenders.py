"""The contenders of a comparison: Afflux, other backends, and the floors that memory sets."""

import importlib
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

import afflux
from afflux.commands.bench.mpi_launch import NotAvailable, mpi_missing

__all__ = [
    "ALL_GATHER_SINGLE",
    "REDUCE_SCATTER_SINGLE",
    "Afflux",
    "Contender",
    "Gloo",
    "Mpi",
    "add_one",
    "read_all",
]

_REDUCE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}


# Where torch has the new names, the old ones warn.
ALL_GATHER_SINGLE = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER_SINGLE = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Contender(Protocol):
    """One backend, whose calls all ranks make at the same time. They return when they are over.

    Attributes:
        name: Its name in tables and JSON.
        of_engine: Whether its sums are Afflux's, right to the bit.
    """

    name: str
    of_engine: bool

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a tensor of shape (count,) to work on."""

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """Reduce in place."""

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Copy the root's tensor to all ranks."""

    def all_gather(self, output: torch.Tensor, part: torch.Tensor) -> None:
        """Collect all ranks' parts; `part` may be this rank's part of `output`."""

    def reduce_scatter(self, part: torch.Tensor, whole: torch.Tensor, op: str) -> None:
        """Reduce, and keep this rank's part, which may be that of `whole`."""

    def barrier(self) -> None:
        """Wait for all ranks."""


class _TorchGroup:
    """A process group of torch, called as users do."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make an ordinary tensor."""
        return torch.empty(count, dtype=dtype)

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """Call torch's function of this name."""
        dist.all_reduce(tensor, _REDUCE_OPS[op], self.group)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Call torch's function of this name."""
        dist.broadcast(tensor, root, self.group)

    def all_gather(self, output: torch.Tensor, part: torch.Tensor) -> None:
        """Call torch's all_gather_into_tensor."""
        ALL_GATHER_SINGLE(output, part, group=self.group)

    def reduce_scatter(self, part: torch.Tensor, whole: torch.Tensor, op: str) -> None:
        """Call torch's reduce_scatter_tensor."""
        REDUCE_SCATTER_SINGLE(part, whole, op=_REDUCE_OPS[op], group=self.group)

    def barrier(self) -> None:
        """Call torch's function of this name."""
        dist.barrier(self.group)


class Afflux(_TorchGroup):
    """The process group of the backend "afflux".

    Args:
        group: A group of all ranks.
        reachable: Work on tensors that the other ranks can reach.

    Raises:
        NotAvailable: Reachable tensors were asked for, and the ranks share no memory.
    """

    name = "afflux"
    of_engine = True

    def __init__(self, group: Any, reachable: bool) -> None:
        super().__init__(group)
        self._reachable = reachable
        engine = afflux.statistics(group)["engine"]
        if reachable and engine != "shm":
            raise NotAvailable(f"--reachable: these ranks share no memory; the engine is {engine}")

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a tensor; collective if reachable."""
        if self._reachable:
            return afflux.empty(count, dtype=dtype, group=self.group)
        return super().empty(count, dtype)


class Gloo(_TorchGroup):
    """torch's own backend for the CPU. It has no average: a sum, then a division in place."""

    name = "gloo"
    of_engine = False

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """Call torch's function of this name."""
        super().all_reduce(tensor, "sum" if op == "avg" else op)
        if op == "avg":
            tensor.div_(dist.get_world_size(self.group))

    def reduce_scatter(self, part: torch.Tensor, whole: torch.Tensor, op: str) -> None:
        """Call torch's reduce_scatter_tensor."""
        super().reduce_scatter(part, whole, "sum" if op == "avg" else op)
        if op == "avg":
            part.div_(dist.get_world_size(self.group))


class Mpi:
    """MPI through mpi4py's interface to buffers, without copies; the average as for Gloo.

    Raises:
        NotAvailable: MPI has no such type, or does not know these ranks.
    """

    name = "mpi"
    of_engine = False

    def __init__(self, ranks: int, dtype: torch.dtype) -> None:
        if missing := mpi_missing(ranks):
            raise NotAvailable(missing)
        if dtype not in (torch.float32, torch.int32, torch.int64):
            raise NotAvailable(f"--compare mpi: MPI has no type for {dtype}")
        MPI = importlib.import_module("mpi4py.MPI")
        self._in_place = MPI.IN_PLACE
        self._ops = {"sum": MPI.SUM, "avg": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
        self._world = MPI.COMM_WORLD
        self._ranks = ranks

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make an ordinary tensor."""
        return torch.empty(count, dtype=dtype)

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """Call MPI_Allreduce."""
        self._world.Allreduce(self._in_place, tensor.numpy(), op=self._ops[op])
        if op == "avg":
            tensor.div_(self._ranks)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Call MPI_Bcast."""
        self._world.Bcast(tensor.numpy(), root)

    def all_gather(self, output: torch.Tensor, part: torch.Tensor) -> None:
        """Call MPI_Allgather."""
        source = self._in_place if _within(part, output) else part.numpy()
        self._world.Allgather(source, output.numpy())

    def reduce_scatter(self, part: torch.Tensor, whole: torch.Tensor, op: str) -> None:
        """Call MPI_Reduce_scatter_block, which in place leaves the part at the beginning."""
        if _within(part, whole):
            self._world.Reduce_scatter_block(self._in_place, whole.numpy(), op=self._ops[op])
            part.copy_(whole[: part.numel()])
        else:
            self._world.Reduce_scatter_block(whole.numpy(), part.numpy(), op=self._ops[op])
        if op == "avg":
            part.div_(self._ranks)

    def barrier(self) -> None:
        """Call MPI_Barrier."""
        self._world.Barrier()


def _within(part: torch.Tensor, whole: torch.Tensor) -> bool:
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def add_one(tensor: torch.Tensor) -> None:
    """Add one to the rank's own tensor, in place: a floor that reads and writes all of it."""
    tensor.add_(1)


def read_all(tensor: torch.Tensor) -> None:
    """Read the rank's own tensor, and write nothing: a floor for sparse sums."""
    # The greatest word: of the ways to read in numpy and torch, the fastest.
    np.max(tensor.view(torch.uint8).numpy().view(_word_of(tensor)))


def _word_of(tensor: torch.Tensor) -> type:
    return {2: np.int16, 4: np.int32, 8: np.int64}[tensor.element_size()]
