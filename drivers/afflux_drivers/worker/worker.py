"""A rank's end of a job: join it, run operations one after the other, report what goes wrong."""

import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import (
    AffluxError,
    AggregatorMisbehaved,
    AggregatorRefused,
    AggregatorUnreachable,
    DeadlineExceeded,
    Interrupted,
    RanksMissing,
    WorkerFailed,
    timed_out,
)
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session, group_of
from afflux_drivers.worker.statistics import WorkerStatistics
from afflux_drivers.worker.udp_loop import UdpLoop
from afflux_hdl.contract import wire

__all__ = ["JobTicket", "LossSwitch", "Reduction", "Worker", "WorkerStatistics"]

_INTERRUPT_EVERY_S = 0.25

_REFUSALS = {
    wire.Refusal.VERSION: "it does not speak this protocol version",
    wire.Refusal.JOB: "it has no such job",
    wire.Refusal.KEY: "the key is not the job's",
    wire.Refusal.WORKER: "the job has no such worker",
}


def _group_name(address: str, port: int) -> str:
    return f"the group {address}:{port}" if address else "each worker"


def _is_over(operation: Operation) -> bool:
    """Return `operation.done`, of which a type checker thinks that a call cannot change it."""
    return operation.done


def _never() -> str | None:
    return None


class Worker:
    """One rank of one group. Used by one thread.

    After any error the worker has failed: every later call raises `WorkerFailed`, which repeats the
    first error.

    Args:
        ticket: The job run.
        rank: Own rank, one of the ticket's.
        loss: Loses packets, for tests.
        peer_timeout_s: How long the aggregator may leave all packets unanswered.

    Raises:
        ValueError: If rank, ticket or the test switch are out of range.
        AggregatorUnreachable: If the aggregator's address, or its group, cannot be reached.
    """

    def __init__(
        self,
        ticket: JobTicket,
        rank: int,
        *,
        loss: LossSwitch | None = None,
        peer_timeout_s: float = 10.0,
    ) -> None:
        if not peer_timeout_s > 0:
            raise ValueError(f"a timeout must be more than 0 s, not {peer_timeout_s}")
        self.ticket = ticket
        self.rank = rank
        self._peer_timeout_s = peer_timeout_s
        # Several probes must fit the time in which their silence is judged.
        self._session = Session(ticket, rank, cap_s=min(1.0, peer_timeout_s / 5))
        self._loop = UdpLoop(
            ticket.host,
            ticket.port,
            loss,
            group_of(ticket),
        )
        self._failure: BaseException | None = None
        self._operation: Operation | None = None
        self._joined = False
        self._closed = False

    @property
    def statistics(self) -> WorkerStatistics:
        """Counts of this worker so far."""
        self._session.statistics.round_trip_s = self._session.trip.smoothed_s
        return self._session.statistics

    def join(self, timeout_s: float) -> None:
        """Make this worker's address known to the aggregator.

        Raises:
            AggregatorUnreachable: If no answer comes in time.
            AggregatorRefused: If the aggregator refuses, or has another job than the ticket's.
            WorkerFailed: If this worker had failed before.
        """
        self._require_usable("join")
        try:
            self._join(timeout_s)
        except BaseException as error:
            self._failure = error
            raise
        self._joined = True

    def all_reduce(
        self,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        timeout_s: float,
        interrupted: Callable[[], str | None] = _never,
    ) -> NDArray[Any]:
        """Reduce a tensor over all ranks of the job.

        Args:
            elements: 1-D contiguous; float32, float16 and int32 as such, bfloat16 as uint16 bits.
                They must not change before the call returns.
            dtype: Type of the elements.
            reduction: What to do with them.
            shape: Shape of the tensor, the same at all ranks.
            timeout_s: How long the operation may take, other ranks' delays included.
            interrupted: Called while waiting, twice a second or more often; if it returns a text,
                the operation ends with that text as error.

        Returns:
            A new 1-D array of the same length and storage dtype.

        Raises:
            ValueError: If the arguments do not fit one another.
            Disagreement: If another rank called something else.
            RanksMissing: If ranks have not contributed in time; names them.
            DeadlineExceeded: If the operation was not over in time for another reason.
            AggregatorUnreachable: If the aggregator has been silent for `peer_timeout_s`.
            AggregatorMisbehaved: If a result breaks the protocol.
            Interrupted: If `interrupted` gave a reason.
            WorkerFailed: If this worker had failed before.
        """
        self._require_usable("all_reduce")
        try:
            if not self._joined:
                raise AffluxError(f"rank {self.rank} has not joined its job; call join first")
            operation = Operation(self._session, elements, dtype, reduction, shape)
            self._operation = operation
            try:
                self._run(operation, timeout_s, interrupted)
            except AffluxError as error:
                error.operation = operation.description.text
                raise
        except BaseException as error:
            self._failure = error
            raise
        self._session.statistics.operations += 1
        return operation.result()

    def complete(self, timeout_s: float, interrupted: Callable[[], str | None] = _never) -> None:
        """Bring the operation in progress, if there is one, to its end.

        For a call in the middle of `all_reduce`'s own wait, by the same thread: a signal handler's.
        That wait then ends at once.

        Raises:
            AffluxError: As `all_reduce`, which raises an error too. The worker has failed.
        """
        self._require_usable("complete")
        if self._operation is not None and not self._operation.done:
            try:
                self._run(self._operation, timeout_s, interrupted)
            except BaseException as error:
                self._failure = error
                raise

    def close(self) -> None:
        """Close the sockets. May be called more than once."""
        self._closed = True
        self._loop.close()

    def _require_usable(self, call: str) -> None:
        if self._failure is not None:
            raise WorkerFailed(
                f"{call}: rank {self.rank}'s worker of job {self.ticket.job} on "
                f"{self._loop.peer} failed earlier: {self._failure}"
            ) from self._failure
        if self._closed:
            raise WorkerFailed(f"{call}: rank {self.rank}'s worker is closed")

    def _join(self, timeout_s: float) -> None:
        loop, join = self._loop, _native.Join(self._session)
        end = time.monotonic() + timeout_s
        loop.open(self._session, join)
        try:
            # In slices, so that signals get their turn.
            while not join.done and (now := time.monotonic()) < end:
                loop.run(self._session, join, min(end, now + _INTERRUPT_EVERY_S))
        except _native.Refused as error:
            (cause,) = error.args
            raise AggregatorRefused(
                f"join: the aggregator at {loop.peer} refused rank {self.rank} of job "
                f"{self.ticket.job}: {_REFUSALS.get(cause, f'cause {cause}')}"
            ) from None
        except _native.DifferentJob as error:
            (found,) = error.args
            raise self._different_job(found) from None
        if not join.done:
            raise AggregatorUnreachable(
                f"join timed out: rank {self.rank} got no answer from the aggregator at "
                f"{loop.peer} in {timeout_s:g} s, {join.sends} packets sent{self._if_refused()}"
            )

    def _different_job(self, found: Sequence[int]) -> AggregatorRefused:
        """Return the error for a JOINED that differs from the ticket."""
        ticket, job, group = self.ticket, list(found[:4]), found[4:]
        expected = [ticket.workers, ticket.lanes, ticket.slots, ticket.credit]
        if job != expected:
            return AggregatorRefused(
                f"join: job {ticket.job} on the aggregator at {self._loop.peer} has workers, "
                f"lanes, slots, credit {job}; rank {self.rank} expects {expected}"
            )
        address = socket.inet_ntoa(group[0].to_bytes(4, "big")) if group[0] else ""
        return AggregatorRefused(
            f"join: the aggregator at {self._loop.peer} sends the results of job {ticket.job} to "
            f"{_group_name(address, group[1])}; rank {self.rank} expects "
            f"{_group_name(ticket.group, ticket.group_port)}"
        )

    def _if_refused(self) -> str:
        return " (its host refuses the port)" if self._loop.refused else ""

    def _run(
        self, operation: Operation, timeout_s: float, interrupted: Callable[[], str | None]
    ) -> None:
        session, loop = self._session, self._loop
        start = now = time.monotonic()
        deadline = start + timeout_s
        next_look = start + _INTERRUPT_EVERY_S
        loop.open(session, operation)
        # Another call of this method, in `interrupted`, may have brought it to its end.
        while not operation.done:
            silence_ends = max(start, session.heard_at) + self._peer_timeout_s
            until = min(next_look, deadline, silence_ends)
            try:
                operation.judged(partial(loop.run, session, operation, until))
            except AggregatorMisbehaved as error:
                raise AggregatorMisbehaved(
                    f"aggregator at {loop.peer}, rank {self.rank}: {error}"
                ) from None
            if _is_over(operation):
                break
            if loop.too_long:
                raise loop.packet_too_long()
            now = time.monotonic()
            if now >= deadline:
                raise self._too_late(operation, timeout_s)
            silent_s = now - max(start, session.heard_at)
            if silent_s >= self._peer_timeout_s:
                raise self._unreachable(silent_s)
            if now >= next_look:
                next_look = now + _INTERRUPT_EVERY_S
                reason = interrupted()
                if reason is not None:
                    raise Interrupted(f"rank {self.rank}: {reason}")

    def _too_late(self, operation: Operation, timeout_s: float) -> DeadlineExceeded:
        too_late = timed_out(timeout_s)
        ranks = operation.missing_ranks()
        if ranks:
            names = ", ".join(str(rank) for rank in ranks)
            return RanksMissing(
                f"{too_late}: rank {self.rank} still waits for the contributions of rank(s) "
                f"{names} (job {self.ticket.job} on the aggregator at {self._loop.peer})",
                ranks,
            )
        if operation.waits_above():
            elsewhere = sorted(set(range(self.ticket.size)) - set(self.ticket.members))
            names = f", rank(s) {', '.join(map(str, elsewhere))}" if self.ticket.members else ""
            return DeadlineExceeded(
                f"{too_late} at rank {self.rank}: the aggregator at {self._loop.peer} has the "
                f"contributions of its own ranks, and waits for its parent: for ranks of other "
                f"aggregators{names}, or for packets lost on the way"
            )
        return DeadlineExceeded(
            f"{too_late} at rank {self.rank}: the aggregator at {self._loop.peer} does not report "
            "that a rank is missing"
        )

    def _unreachable(self, silent_s: float) -> AggregatorUnreachable:
        return AggregatorUnreachable(
            f"timed out: rank {self.rank} has heard nothing from the aggregator at "
            f"{self._loop.peer} for {silent_s:.1f} s{self._if_refused()}"
        )
