"""The reducer of one rank: a worker at an aggregator, or memory that the group's ranks share."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.tensors import elements_of, write_back
from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.shared.worker import SharedCall, SharedWorker
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["Interruption", "JobReducer", "Reducer", "SharedMemoryReducer"]

Interruption = Callable[[], str | None]
"""Called while waiting; if it returns a text, the operation ends with that text as error."""

_Plan = TypeVar("_Plan")


class Reducer(Protocol[_Plan]):
    """What a group needs of an aggregator, or of memory that its ranks share.

    Its type parameter is what `plan` gives and `all_reduce` takes.

    Attributes:
        url: AFFLUX_AGGREGATOR.
        engine: Kind of engine: "shm", "soft", "rtl", …
        ticket: The job; None without one. Rank 0 ends it, so it waits for the other ranks first.
    """

    url: AggregatorUrl
    engine: str
    ticket: JobTicket | None

    def plan(self, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> _Plan:
        """Prepare what is the same for all tensors of this dtype and shape."""

    def all_reduce(
        self, tensor: torch.Tensor, plan: _Plan, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Reduce a tensor over all ranks, in place, whatever its strides.

        Raises:
            AffluxError: As the worker raises it. The reducer has failed.
        """

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Wait until all ranks have called this with the same number, at most 32 bits wide.

        Raises:
            AffluxError: As for `all_reduce`.
        """

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a flat tensor: zeros that all ranks can reach, if they share memory. Collective."""

    def give_up(self, reason: str) -> None:
        """Let the other ranks know that operations will not end. For any thread."""

    def statistics(self) -> dict[str, Any]:
        """Return what this rank has done, by name."""

    def leave(self) -> None:
        """Give everything back. Rank 0 ends the job: all ranks must be done with it."""


class _JobPlan(NamedTuple):
    dtype: wire.Dtype
    reduction: Reduction
    shape: tuple[int, ...]


class JobReducer:
    """A `Reducer` over a worker of a job at an aggregator.

    Args:
        worker: It has joined the job.
        ticket: The job.
        url: AFFLUX_AGGREGATOR.
        give_back: Called after the worker is closed.
    """

    def __init__(
        self, worker: Worker, ticket: JobTicket, url: AggregatorUrl, give_back: Callable[[], None]
    ) -> None:
        self.url = url
        self.ticket: JobTicket | None = ticket
        self.engine = ticket.engine
        self._slots = {"lanes": ticket.lanes, "slots": ticket.slots}
        self._worker = worker
        self._give_back = give_back

    def plan(self, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> _JobPlan:
        """Return the arguments that the worker takes."""
        return _JobPlan(dtype, reduction, tuple(shape))

    def all_reduce(
        self, tensor: torch.Tensor, plan: _JobPlan, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Reduce it through the worker's packets."""
        result = self._worker.all_reduce(
            elements_of(tensor), plan.dtype, plan.reduction, plan.shape, timeout_s, interrupted
        )
        write_back(tensor, result)

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """All-reduce an empty tensor whose shape contains the number."""
        nothing = np.empty(0, np.int32)
        self._worker.all_reduce(
            nothing, wire.Dtype.INT32, Reduction.SUM, (0, number), timeout_s, interrupted
        )

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory: results come in packets."""
        return torch.zeros(elements, dtype=dtype)

    def give_up(self, reason: str) -> None:
        """Do nothing: the others look at the group's notices while they wait."""

    def statistics(self) -> dict[str, Any]:
        """Return the job's size and the worker's counts."""
        worker = self._worker.statistics
        return {
            **self._slots,
            **asdict(worker),
            "frame_bytes_sent": worker.frame_bytes_sent,
            "frame_bytes_received": worker.frame_bytes_received,
        }

    def leave(self) -> None:
        """Close the worker, then give back what rank 0 holds for the group."""
        self._worker.close()
        self._give_back()


class SharedMemoryReducer:
    """A `Reducer` over a segment of memory that the ranks of one host share.

    Args:
        worker: This rank's part of the segment.
        url: AFFLUX_AGGREGATOR.
    """

    engine = "shm"
    ticket: JobTicket | None = None

    def __init__(self, worker: SharedWorker, url: AggregatorUrl) -> None:
        self.url = url
        self._worker = worker

    def plan(self, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> SharedCall:
        """Return the call with its fingerprint."""
        return SharedCall.of(dtype, reduction, tuple(shape))

    def all_reduce(
        self, tensor: torch.Tensor, plan: SharedCall, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Reduce it straight from and to the tensor's memory if that is contiguous."""
        # A lazily negated view stores other bits than it shows.
        if tensor.is_contiguous() and not tensor.is_neg():
            self._worker.all_reduce(tensor.data_ptr(), plan, timeout_s, interrupted)
            return
        # .data: a collective is not a step of autograd and leaves version counters alone.
        data = tensor.data
        flat = data.resolve_neg().clone(memory_format=torch.contiguous_format)
        self._worker.all_reduce(flat.data_ptr(), plan, timeout_s, interrupted)
        data.copy_(flat)

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Go through one phase of the ranks, without data."""
        self._worker.agree(number, timeout_s, interrupted)

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return memory of the segment."""
        array = self._worker.allocate(max(elements, 1) * dtype.itemsize)
        return torch.from_numpy(array).view(dtype)[:elements]

    def give_up(self, reason: str) -> None:
        """Wake the other ranks from their operations."""
        self._worker.fail(reason)

    def statistics(self) -> dict[str, Any]:
        """Return the worker's counts."""
        return {"lanes": wire.LANES_MAX, **self._worker.statistics()}

    def leave(self) -> None:
        """Let go of the segment; it is freed when the last rank has."""
        self._worker.close()
