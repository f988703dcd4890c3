"""Ranks of one host that sum in memory they share, without an aggregator."""

import json
import os
from typing import Any

import torch

from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.exchange import Introduction, Meeting
from afflux.group.reducer import Interruption
from afflux.group.settings import Settings
from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError
from afflux_drivers.shared.segment import SegmentOffer, fetch_segment
from afflux_drivers.shared.worker import SharedCall, SharedWorker
from afflux_hdl.contract import wire

__all__ = ["SharedMembership", "Sharing", "why_not_shared"]


class SharedMembership:
    """A rank with a part of a segment; `afflux.group.reducer.Membership` has the attributes."""

    engine = "shm"
    ticket: JobTicket | None = None

    def __init__(self, worker: SharedWorker, url: AggregatorUrl) -> None:
        self.url = url
        self._worker = worker

    def plan(self, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> SharedCall:
        """The call, with its fingerprint."""
        return SharedCall.of(dtype, reduction, tuple(shape))

    def all_reduce(
        self, tensor: torch.Tensor, plan: Any, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Straight from and to the tensor's memory if that is contiguous."""
        # A lazily negated view stores other bits than it shows.
        if tensor.is_contiguous() and not tensor.is_neg():
            self._worker.all_reduce(tensor.data_ptr(), plan, timeout_s, interrupted)
            return
        # .data: a collective is no step of autograd and leaves version counters alone.
        data = tensor.data
        flat = data.resolve_neg().clone(memory_format=torch.contiguous_format)
        self._worker.all_reduce(flat.data_ptr(), plan, timeout_s, interrupted)
        data.copy_(flat)

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """One phase of the ranks, without data."""
        self._worker.agree(number, timeout_s, interrupted)

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory of the segment."""
        array = self._worker.allocate(max(elements, 1) * dtype.itemsize)
        return torch.from_numpy(array).view(dtype)[:elements]

    def give_up(self, reason: str) -> None:
        """Wake the other ranks from their operations."""
        self._worker.fail(reason)

    def statistics(self) -> dict[str, Any]:
        """The worker's counts."""
        return {"lanes": wire.LANES_MAX, **self._worker.statistics()}

    def leave(self) -> None:
        """Let go of the segment; the last rank's end frees it."""
        self._worker.close()


def why_not_shared(everyone: list[Introduction]) -> str:
    """Why ranks that introduced themselves so can not share memory; empty if they may try."""
    for rank, each in enumerate(everyone):
        if each.host != everyone[0].host:
            return f"rank {rank} is on another host or in another network namespace than rank 0"
    return ""


class Sharing:
    """One rank's steps to a shared segment. Collective over the group.

    Args:
        meeting: Of the group.
        rank: Own rank in the group.
        size: Ranks of the group.
    """

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        self._meeting = meeting
        self._rank = rank
        self._size = size
        self._offer: SegmentOffer | None = None

    def offer(self) -> str:
        """Rank 0: make a segment. Returns the ticket that leads the others to it.

        Raises:
            OSError: There is no memory, descriptor or socket to be had.
        """
        self._offer = SegmentOffer(self._size)
        return json.dumps({"name": self._offer.name, "secret": self._offer.secret})

    def enter(self, ticket: str, settings: Settings) -> tuple[SharedMembership | None, list[str]]:
        """Hand out or fetch the segment, map it, and hear whether all ranks have.

        Returns:
            The membership, or None if some rank has not; and which have not, and why.
        """
        worker: SharedWorker | None = None
        refusal = ""
        try:
            descriptor = self._descriptor(ticket)
            worker = SharedWorker(descriptor, self._rank, self._size)
        except (AffluxError, OSError, RuntimeError, ValueError) as error:
            refusal = str(error) or type(error).__name__
        try:
            refusals = self._meeting.mapped(refusal)
            if worker is not None and not refusals:
                return SharedMembership(worker, settings.aggregator), []
        except BaseException:
            if worker is not None:
                worker.close()
            raise
        if worker is not None:
            worker.close()
        return None, refusals

    def _descriptor(self, ticket: str) -> int:
        if self._offer is None:
            place = json.loads(ticket)
            return fetch_segment(place["name"], place["secret"], self._rank)
        try:
            missing = self._offer.serve()
        finally:
            self._offer.close()
        if missing:
            os.close(self._offer.descriptor)
            names = ", ".join(map(str, sorted(missing)))
            raise AffluxError(f"rank(s) {names} did not fetch the memory")
        return self._offer.descriptor
