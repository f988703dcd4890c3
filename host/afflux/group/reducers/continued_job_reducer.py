"""Sums by aggregators of packets that go on when these end.

Where a host has several ranks, its leader alone hears of results. Behind the fence it leaves what
has come in the memory that they share, and only then writes its state, which the others await: so
the ranks of a host have the same results when all write down which these are.

Tested: `tests/host/test_fail_over.py`, `tests/host/test_fail_over_by_host.py`.
"""

import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from afflux.group.call.tensors import ENGINE_DTYPES, elements_of, write_back
from afflux.group.reducers.continued_reducer import ContinuedReducer, Replace
from afflux.group.reducers.fail_back import FailBack
from afflux.group.reducers.host_journal import HostJournal
from afflux.group.reducers.host_worker import HostWorker
from afflux.group.reducers.job_reducer import Holding, HostJobReducer, JobReducer, NativeJobReducer
from afflux.group.reducers.recovery import Results
from afflux.group.reducers.reducer import Begun, Interruption, Reducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.store.epoch import Epoch
from afflux_drivers._native import Journal
from afflux_drivers.collective import Description, Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AggregatorUnreachable
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["ContinuedHostReducer", "ContinuedJobReducer"]

_TORCH_DTYPES = {each: dtype for dtype, each in ENGINE_DTYPES.items()}


class _ContinuedJobs(ContinuedReducer, JobReducer[Any]):
    """What both have: the calls, and who carries them out."""

    def __init__(
        self,
        results: Results,
        rank: int,
        size: int,
        epoch: Epoch,
        replace: Replace,
        timeout_s: float,
        back: FailBack,
    ) -> None:
        ContinuedReducer.__init__(self, results, rank, size, epoch, replace, timeout_s, back)
        # The call that is running, or was last.
        self._about = Description(0, Reduction.SUM, wire.Dtype.INT32, (0,))

    def _all_reduce(
        self,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        timeout_s: float,
        interrupted: Interruption,
    ) -> None:
        deadline = time.monotonic() + timeout_s
        of_call = dtype, reduction, shape
        if self._works():
            self._busy = True
            self._about = Description(0, reduction, dtype, shape)
            try:
                super()._all_reduce(elements, *of_call, timeout_s, interrupted)
                return
            except AggregatorUnreachable as death:
                if self._go_over(death, deadline, interrupted):
                    return
            finally:
                self._busy = False
        self._do_by_other(elements, *of_call, deadline, interrupted)

    def _watching(self, interrupted: Interruption) -> Interruption:
        watching = super()._watching(interrupted)

        def declared() -> str | None:
            declared = self._epoch.declared()
            if declared is not None:
                raise AggregatorUnreachable(str(declared))
            return watching()

        return declared

    def _call_text(self) -> str:
        return self._about.rest

    def _kind(self) -> tuple[torch.dtype, str]:
        return _TORCH_DTYPES[self._about.dtype], self._about.reduction.value

    def _do_by_other(
        self,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        deadline: float,
        interrupted: Interruption,
    ) -> None:
        """Reduce elements in place by the reducer that goes on."""
        with self._calling_other(deadline, interrupted) as (other, until):
            if not len(elements):
                number = zlib.crc32(Description(0, reduction, dtype, shape).rest.encode())
                other.agree(number, max(0.0, until - time.monotonic()), interrupted)
                return
            bits = elements.view(np.int16) if elements.dtype == np.uint16 else elements
            tensor = torch.from_numpy(bits).view(_TORCH_DTYPES[dtype]).view(shape)
            self._all_reduce_by_other(tensor, reduction.value, until, interrupted)

    def give_up(self, reason: str) -> None:
        """Wake the others where they wait for one another."""
        if self._other is not None:
            self._other.give_up(reason)

    def statistics(self) -> dict[str, Any]:
        """Return the counts at all aggregators so far, and how often that has changed."""
        counts = self._counts_of_all(super().statistics())
        return {**counts, **self._changes()}

    def leave(self) -> None:
        """Let go of both reducers."""
        self._leave_other()
        super().leave()


class ContinuedJobReducer(_ContinuedJobs, NativeJobReducer):
    """A `NativeJobReducer` that goes on over another reducer when its aggregators end.

    Args:
        worker, tickets, url, holding, topology: As for `JobReducer`.
        journal: The worker's.
        rank: Own rank.
        epoch: The change to the other reducer.
        replace: Makes that.
        timeout_s: The group's timeout, for what no call waits for.
        back: The way back to aggregators.
    """

    def __init__(
        self,
        worker: Worker,
        tickets: Sequence[JobTicket],
        url: AggregatorUrl,
        holding: Holding,
        topology: Topology,
        journal: Journal,
        rank: int,
        epoch: Epoch,
        replace: Replace,
        timeout_s: float,
        back: FailBack,
    ) -> None:
        NativeJobReducer.__init__(self, worker, tickets, url, holding, topology)
        size = tickets[0].size
        _ContinuedJobs.__init__(self, journal, rank, size, epoch, replace, timeout_s, back)

    def finish(self, begun: Begun, timeout_s: float, interrupted: Interruption) -> None:
        """See `NativeCalls`. C++ cannot begin what comes after a change, and hands it over."""
        deadline = begun.began_s + timeout_s
        about = begun.call.about
        if self._works():
            self._busy = True
            self._about = about
            try:
                super().finish(begun, timeout_s, interrupted)
                return
            except AggregatorUnreachable as death:
                if self._go_over(death, deadline, interrupted):
                    return
            finally:
                self._busy = False
        of_call = about.dtype, about.reduction, about.shape
        if not begun.outputs:
            self._do_by_other(np.empty(0, np.int32), *of_call, deadline, interrupted)
            return
        (tensor,) = begun.outputs
        elements = elements_of(tensor)
        self._do_by_other(elements, *of_call, deadline, interrupted)
        write_back(tensor, elements)

    def _fence(self) -> None:
        """Take no result of the aggregators any more."""
        self._worker.close()


class ContinuedHostReducer(_ContinuedJobs, HostJobReducer):
    """A `HostJobReducer` that goes on over another reducer when its aggregators end.

    Args:
        worker, tickets, url, holding, topology: As for `JobReducer`.
        journal: The worker's.
        rank: Own rank.
        leader: The rank of this host that has its worker.
        epoch, replace, timeout_s, back: As for `ContinuedJobReducer`.
    """

    def __init__(
        self,
        worker: HostWorker,
        tickets: Sequence[JobTicket],
        url: AggregatorUrl,
        holding: Holding,
        topology: Topology,
        journal: HostJournal,
        rank: int,
        leader: int,
        epoch: Epoch,
        replace: Replace,
        timeout_s: float,
        back: FailBack,
    ) -> None:
        HostJobReducer.__init__(self, worker, tickets, url, holding, topology)
        size = tickets[0].size
        _ContinuedJobs.__init__(self, journal, rank, size, epoch, replace, timeout_s, back)
        self._pieces = journal
        self._leader = leader

    def _fence(self) -> None:
        if self._rank == self._leader:
            self._worker.fence()

    def _settle(self, deadline: float, interrupted: Interruption) -> None:
        if self._rank != self._leader:
            found = self._await_states([self._leader], deadline, interrupted)[self._leader]
            self._worker.take_out(*(found[each] for each in ("over", "running", "begun", "done")))

    def _state(self, left: bool = False) -> dict[str, Any]:
        pieces = self._pieces
        return {**super()._state(left), "begun": pieces.begun, "done": pieces.done}

    def _keeps(self) -> bool:
        return self._rank == self._leader

    def _retire(self, other: Reducer[Any]) -> None:
        # All ranks of the host have taken out what they lacked.
        self._worker.close()

    def give_up(self, reason: str) -> None:
        """Wake the others where they wait for one another."""
        if self._other is None:
            self._worker.fail(reason)
        super().give_up(reason)
