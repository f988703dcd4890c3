"""Collectives through a worker of jobs at one or more aggregators."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from afflux.group.call.collectives import Asked
from afflux.group.call.tensors import ENGINE_DTYPES, elements_of, write_back
from afflux.group.reducers.host_worker import HostWorker
from afflux.group.reducers.reducer import Begun, Comparison, Interruption, refused
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers._native import Turn
from afflux_drivers.c_api import Status
from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError, AggregatorUnreachable
from afflux_drivers.worker.request import WorkerCall
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["Holding", "HostJobReducer", "JobReducer", "NativeJobReducer"]

_Worker = TypeVar("_Worker", bound=Worker | HostWorker)

_REDUCTIONS = {each.value: each for each in Reduction}


class Holding(Protocol):
    """A rank's hold on the jobs of its group."""

    @property
    def holds(self) -> bool:
        """Whether something ends with this that the other ranks need."""

    def named(self, text: str) -> str:
        """Return a message with the names of the aggregators whose addresses it has."""

    def trouble(self) -> str | None:
        """Return why the group cannot go on: what this rank has launched has ended."""

    def give_back(self) -> None:
        """End all of it. May be called more than once."""


class _JobPlan(NamedTuple):
    dtype: wire.Dtype
    reduction: Reduction
    shape: tuple[int, ...]
    divided: bool
    prepared: WorkerCall | None


class JobReducer(Generic[_Worker]):
    """A `Reducer` over a worker of jobs at one or more aggregators.

    Args:
        worker: It has joined the jobs, here or at the leader of this rank's host.
        tickets: The jobs.
        url: AFFLUX_AGGREGATOR.
        holding: This rank's hold on the jobs; given back after the worker is closed.
        topology: Which way the sums take.
    """

    comparison = Comparison.BEFORE
    notices_ends = False

    def __init__(
        self,
        worker: _Worker,
        tickets: Sequence[JobTicket],
        url: AggregatorUrl,
        holding: Holding,
        topology: Topology,
    ) -> None:
        self.url = url
        self.tickets: tuple[JobTicket, ...] = tuple(tickets)
        self.topology = topology
        self.engine = tickets[0].engine
        self._workers = tickets[0].size
        self._slots = {
            "aggregators": len(tickets),
            "lanes": tickets[0].lanes,
            "slots": min(ticket.slots for ticket in tickets),
        }
        self._worker = worker
        self._holding = holding

    @property
    def holds(self) -> bool:
        """Whether the jobs, or aggregators of theirs, end with this rank."""
        return self._holding.holds

    @property
    def native(self) -> "NativeJobReducer | None":
        """None, as the ranks of a host need Python."""
        return None

    def follow(self, turn: Turn) -> None:
        """Do nothing: workers number their operations themselves."""

    def plan(self, asked: Asked) -> _JobPlan | None:
        """Return the arguments that the worker takes."""
        dtype = ENGINE_DTYPES.get(asked.dtype)
        reduction = _REDUCTIONS.get(asked.reduction)
        if asked.collective != "all_reduce" or dtype is None or reduction is None:
            return None
        # The engine's average is a float's; an integer's is made here, of sums of its halves, as
        # its sum may be larger than an integer.
        divided = reduction is Reduction.AVG and dtype is wire.Dtype.INT32
        if divided:
            return _JobPlan(dtype, Reduction.SUM, (2, *asked.shape), True, None)
        return _JobPlan(
            dtype, reduction, asked.shape, False, self._prepare(dtype, reduction, asked)
        )

    def _prepare(self, dtype: wire.Dtype, reduction: Reduction, asked: Asked) -> WorkerCall | None:
        """Return the call as C++ takes it: None, as the ranks of a host need Python."""
        return None

    def run(
        self,
        plan: _JobPlan,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """Reduce a tensor through the worker's packets, where it lies if it lies in one piece."""
        (tensor,) = outputs
        elements = elements_of(tensor)
        summed = np.concatenate([elements >> 16, elements & 0xFFFF]) if plan.divided else elements
        of_call = plan.dtype, plan.reduction, plan.shape, timeout_s, interrupted
        self._all_reduce(summed, *of_call)
        if plan.divided:
            upper, lower = summed.astype(np.int64).reshape(2, -1)
            total = torch.from_numpy((upper << 16) + lower)
            # Towards zero, as NCCL divides.
            elements[:] = total.div_(self._workers, rounding_mode="trunc").numpy()
        write_back(tensor, elements)
        return True

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """All-reduce an empty tensor whose shape contains the number."""
        nothing = np.empty(0, np.int32)
        of_call = wire.Dtype.INT32, Reduction.SUM, (0, number), timeout_s, interrupted
        self._all_reduce(nothing, *of_call)

    def _all_reduce(
        self,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        timeout_s: float,
        interrupted: Interruption,
    ) -> None:
        """Reduce elements in place; see `Worker.all_reduce`."""
        with self._naming():
            self._worker.all_reduce(
                elements, dtype, reduction, shape, timeout_s, self._watching(interrupted),
                in_place=True,
            )  # fmt: skip

    def _watching(self, interrupted: Interruption) -> Interruption:
        """Return what also raises if an aggregator ends whose job this rank holds."""

        def watching() -> str | None:
            reason = interrupted()
            if reason is None and (trouble := self._holding.trouble()) is not None:
                # No interruption: this rank is the first that knows.
                raise AggregatorUnreachable(trouble)
            return reason

        return watching

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Let errors name the aggregators of which they state addresses."""
        try:
            yield
        except AffluxError as error:
            error.args = (self._holding.named(str(error.args[0])), *error.args[1:])
            raise

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory: results come in packets."""
        return torch.zeros(elements, dtype=dtype)

    def give_up(self, reason: str) -> None:
        """Do nothing: the other ranks look at the group's notices while they wait."""

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
        """Close the worker, then give back what this rank holds for the group."""
        self._worker.close()
        self._holding.give_back()


class HostJobReducer(JobReducer[HostWorker]):
    """One over the worker that the ranks of a host have together."""

    def give_up(self, reason: str) -> None:
        """Wake the other ranks of the host."""
        self._worker.fail(reason)


class NativeJobReducer(JobReducer[Worker]):
    """One over a worker that each rank has for itself: C++ can begin its operations."""

    @property
    def native(self) -> "NativeJobReducer":
        """It is that itself."""
        return self

    def _prepare(self, dtype: wire.Dtype, reduction: Reduction, asked: Asked) -> WorkerCall | None:
        return self._worker.prepare(dtype, reduction, asked.shape)

    def calls(self) -> Any:
        """Return the capsule through which C++ calls."""
        return self._worker.calls()

    def agreement(self, number: int) -> WorkerCall:
        """Return the call of `agree`, prepared."""
        return self._worker.prepare(wire.Dtype.INT32, Reduction.SUM, (0, number))

    def prepared(self, plan: _JobPlan) -> WorkerCall | None:
        """Return the plan's call; None if integers are to be divided."""
        return plan.prepared

    def finish(self, begun: Begun, timeout_s: float, interrupted: Interruption) -> None:
        """See `NativeCalls`."""
        with self._naming(), refused(begun.call.about.text):
            self._worker.finish(
                begun.call,
                timeout_s,
                self._watching(interrupted),
                begun.waited_s,
                Status(begun.status),
                begun.text,
            )
