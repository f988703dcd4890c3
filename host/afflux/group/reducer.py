"""One rank's part in whatever sums for its group."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import torch

from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.tensors import elements_of, write_back
from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["Interruption", "JobMembership", "Membership"]

Interruption = Callable[[], str | None]
"""Asked while waiting; a text that it returns ends the operation with that text as error."""


class Membership(Protocol):
    """What a group needs of an aggregator, or of memory that its ranks share.

    Attributes:
        url: AFFLUX_AGGREGATOR.
        engine: What sums: "shm", "soft", "rtl", …
        ticket: The job; None without one. Rank 0 ends it, so it waits for the other ranks first.
    """

    url: AggregatorUrl
    engine: str
    ticket: JobTicket | None

    def plan(self, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> Any:
        """What `all_reduce` takes for tensors of this dtype and shape."""

    def all_reduce(
        self, tensor: torch.Tensor, plan: Any, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Reduce a tensor over all ranks, in place, whatever its strides.

        Raises:
            AffluxError: As the worker has it. The membership has failed.
        """

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Wait until all ranks have called this with the same number, at most 32 bits wide.

        Raises:
            AffluxError: As for `all_reduce`.
        """

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A flat tensor; zeros, and in reach of all ranks, if they share memory. Collective."""

    def give_up(self, reason: str) -> None:
        """Let the other ranks know that operations will not end. Any thread."""

    def statistics(self) -> dict[str, Any]:
        """What this rank has done, by name."""

    def leave(self) -> None:
        """Give everything back. Rank 0 ends the job: all ranks must be done with it."""


class JobMembership:
    """A rank with a worker at an aggregator; `Membership` has the attributes.

    Args:
        worker: Joined.
        ticket: The job.
        url: AFFLUX_AGGREGATOR.
        give_back: Called after the worker's end.
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

    def plan(self, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> Any:
        """What the worker takes."""
        return dtype, reduction, tuple(shape)

    def all_reduce(
        self, tensor: torch.Tensor, plan: Any, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Through the worker's packets."""
        dtype, reduction, shape = plan
        result = self._worker.all_reduce(
            elements_of(tensor), dtype, reduction, shape, timeout_s, interrupted
        )
        write_back(tensor, result)

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """An empty all-reduce whose shape is the number."""
        nothing = np.empty(0, np.int32)
        self._worker.all_reduce(
            nothing, wire.Dtype.INT32, Reduction.SUM, (0, number), timeout_s, interrupted
        )

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Ordinary memory: results come in packets."""
        return torch.zeros(elements, dtype=dtype)

    def give_up(self, reason: str) -> None:
        """Nothing: the others ask the group's board while they wait."""

    def statistics(self) -> dict[str, Any]:
        """The job's size and the worker's counts."""
        worker = self._worker.statistics
        return {
            **self._slots,
            **asdict(worker),
            "frame_bytes_sent": worker.frame_bytes_sent,
            "frame_bytes_received": worker.frame_bytes_received,
        }

    def leave(self) -> None:
        """Close the worker, and what rank 0 has got for the group."""
        self._worker.close()
        self._give_back()
