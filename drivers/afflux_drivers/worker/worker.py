"""A rank's end of a job: join it, run operations one after the other, report what goes wrong."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers._native import Journal
from afflux_drivers.c_api import Status
from afflux_drivers.collective import Description, Reduction, storage_dtype
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import (
    AffluxError,
    AggregatorUnreachable,
    DeadlineExceeded,
    Interrupted,
    RanksMissing,
    WorkerFailed,
    timed_out,
)
from afflux_drivers.worker.again import Again
from afflux_drivers.worker.joining import join
from afflux_drivers.worker.line import Line, UdpLoop
from afflux_drivers.worker.liveness import LOOK_S, LivenessCheck
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.operation import HostPiece, OpenedPart, Operation
from afflux_drivers.worker.request import WorkerCall
from afflux_drivers.worker.session import Session, group_of
from afflux_drivers.worker.statistics import WorkerStatistics
from afflux_hdl.contract import wire

__all__ = ["JobTicket", "LossSwitch", "Reduction", "Worker", "WorkerStatistics"]

_NO_OTHERS = HostPiece()

Part = Operation | OpenedPart | Again


def _over(operations: Sequence[Part]) -> bool:
    return all(operation.done for operation in operations)


def _never() -> str | None:
    return None


class Worker:
    """One rank of one group. Used by one thread.

    After any error the worker has failed: every later call raises `WorkerFailed`, which repeats the
    first error.

    Args:
        tickets: The job runs, one for each of the aggregators that share the columns of a tensor.
            The same at all ranks, in the same order.
        rank: Own rank, one of the tickets'.
        loss: Loses packets, for tests.
        peer_timeout_s: How long an aggregator may leave all packets unanswered.
        buffer_bytes: Size to request for socket buffers, for each aggregator.
        reduced: Whether the elements of each worker's ranks are reduced before they come here, as
            the tickets' workers are to agree: averages are then of workers.
        journal: Learns what comes of the calls, which all are in place; None if nobody needs to
            know.

    Raises:
        ValueError: If rank, tickets or the test switch are out of range, or the tickets do not fit
            one another.
        AggregatorUnreachable: If an aggregator's address, or its group, cannot be reached.
    """

    def __init__(
        self,
        tickets: Sequence[JobTicket],
        rank: int,
        *,
        loss: LossSwitch | None = None,
        peer_timeout_s: float = 5.0,
        buffer_bytes: int = _native.SOCKET_BUFFER_BYTES,
        reduced: bool = False,
        journal: Journal | None = None,
    ) -> None:
        if not peer_timeout_s > 0:
            raise ValueError(f"a timeout must be more than 0 s, not {peer_timeout_s}")
        if not tickets:
            raise ValueError("a worker needs at least one job")
        if len({(ticket.size, ticket.lanes) for ticket in tickets}) > 1:
            raise ValueError(
                "aggregators that share columns have jobs of as many ranks and lanes, not "
                + ", ".join(f"{ticket.size} and {ticket.lanes}" for ticket in tickets)
            )
        self.tickets = tuple(tickets)
        self.rank = rank
        self._peer_timeout_s = peer_timeout_s
        self._slots = min(ticket.slots for ticket in tickets)
        self._operations_over = 0
        self._loop = UdpLoop([])
        lines: list[Line] = []
        try:
            for ticket in tickets:
                # Several probes must fit the time in which their silence is judged.
                cap_s = min(1.0, peer_timeout_s / 5)
                session = Session(ticket, rank, cap_s, reduced=reduced)
                session.journal = journal
                address = ticket.host, ticket.port
                lines.append(Line(*address, session, loss, group_of(ticket), buffer_bytes))
        except BaseException:
            for line in lines:
                line.close()
            raise
        self._loop = UdpLoop(lines)
        sessions = [line.session for line in lines]
        self._calls = _native.WorkerCalls(self._loop, lines, sessions)
        self._journal = journal
        self._failure = ""
        self._joined = False
        self._closed = False

    @property
    def statistics(self) -> WorkerStatistics:
        """Counts of this worker so far."""
        lines = self._loop.lines
        each = (line.session.statistics for line in lines)
        found = WorkerStatistics.of(self._operations_over + self._calls.over, each)
        found.system_calls = self._loop.waits + sum(line.calls for line in lines)
        return found

    def join(self, timeout_s: float) -> None:
        """Make this worker's address known to the aggregators.

        Raises:
            AggregatorUnreachable: If no answer comes in time.
            AggregatorRefused: If an aggregator refuses, or has another job than the ticket's.
            WorkerFailed: If this worker had failed before.
        """
        self._require_usable("join")
        try:
            join(self._loop, timeout_s)
        except BaseException as error:
            self._fail_with(error)
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
        *,
        in_place: bool = False,
        host: HostPiece = _NO_OTHERS,
        waited_s: float = 0.0,
    ) -> NDArray[Any]:
        """Reduce a tensor over all ranks of the job.

        Args:
            elements: 1-D contiguous; float32, float16 and int32 as such, bfloat16 as uint16 bits.
                Nobody else may change them before the call returns.
            dtype: Type of the elements.
            reduction: The reduction to apply.
            shape: Shape of the tensor, the same at all ranks.
            timeout_s: How long the operation may take, other ranks' delays included.
            interrupted: Called while waiting, ten times a second; if it returns a text,
                the operation ends with that text as error.
            in_place: Put the result where the elements are. A packet that is there after an error
            is
                undefined: some blocks may be sums.
            host: Contributions of the other ranks of this one's host, as the tickets name them.
            waited_s: How much of the timeout has passed.

        Returns:
            The elements, if in place; else a new 1-D array of the same length and storage dtype.

        Raises:
            ValueError: If the arguments do not fit one another.
            Disagreement: If another rank called something else.
            RanksMissing: If ranks have not contributed in time; names them.
            DeadlineExceeded: If the operation was not over in time for another reason.
            AggregatorUnreachable: If the aggregator has ended, does not know the job any more, or
                has been silent for `peer_timeout_s`.
            PacketTooLong: If the path does not carry the job's packets.
            AggregatorMisbehaved: If a result breaks the protocol.
            Interrupted: If `interrupted` gave a reason.
            WorkerFailed: If this worker had failed before.
        """
        self._require_usable("all_reduce")
        try:
            if not self._joined:
                raise AffluxError(f"rank {self.rank} has not joined its job; call join first")
            result = elements if in_place else np.zeros(len(elements), storage_dtype(dtype))
            operations = self._start(elements, dtype, reduction, shape, result, host)
            if self._journal is not None:
                self._journal.begin(result)
            try:
                start = time.monotonic()
                self._run(operations, timeout_s, interrupted, waited_s)
                blocks = sorted(block for part in operations for block in part.not_summed())
                while blocks:
                    again = Again(
                        self._loop.lines[0].session,
                        elements,
                        result,
                        dtype,
                        reduction,
                        blocks,
                        host,
                    )
                    self._loop.open([again])
                    waited = waited_s + time.monotonic() - start
                    self._run((again,), timeout_s, interrupted, waited)
                    again.finish()
                    if self._journal is not None:
                        self._journal.keep_only(blocks[: again.blocks])
                    blocks = blocks[again.blocks :]
            except AffluxError as error:
                error.operation = operations[0].description.text
                raise
        except BaseException as error:
            self._fail_with(error)
            raise
        if self._journal is not None:
            self._journal.end()
        self._operations_over += 1
        return operations[0].result()

    def prepare(
        self, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]
    ) -> WorkerCall:
        """Prepare an all-reduce in place for `calls`; for the arguments see `all_reduce`."""
        about = Description(0, reduction, dtype, shape)
        return WorkerCall.of(about, self._calls.describe(about.rest))

    def calls(self) -> Any:
        """Return a capsule with the calls of `c_api.h`, for a worker that has joined."""
        return self._calls.calls()

    def finish(
        self,
        call: WorkerCall,
        timeout_s: float,
        interrupted: Callable[[], str | None] = _never,
        waited_s: float = 0.0,
        status: Status = Status.NOT_YET,
        text: str = "",
    ) -> None:
        """Bring an operation to its end that was begun through `calls`.

        Args:
            call: The call.
            timeout_s: How long the operation may take, from its beginning.
            interrupted: As for `all_reduce`.
            waited_s: How long it has taken so far.
            status: The return value of the call.
            text: Why, if the status says that it failed.

        Raises:
            ValueError: The call was refused. Nothing has happened.
            AffluxError: As for `all_reduce`.
        """
        if status == Status.INVALID:
            raise ValueError(text)
        self._require_usable("all_reduce")
        about = call.numbered(self._calls.number)
        try:
            parts = [
                OpenedPart(part, line.session, about)
                for part, line in zip(self._calls.parts(), self._loop.lines, strict=False)
            ]
            try:
                if status != Status.NOT_YET:
                    self._judge(parts, self._calls.raise_failure)
                    raise AffluxError(f"rank {self.rank}: {text}")
                start = time.monotonic()
                self._run(parts, timeout_s, interrupted, waited_s)
                # It counts what is over, or begins to bring again what was not summed.
                while self._calls.advance(self._calls.in_progress(), 0.0) == Status.NOT_YET:
                    parts = [OpenedPart(self._calls.parts()[0], self._loop.lines[0].session, about)]
                    waited = waited_s + time.monotonic() - start
                    self._run(parts, timeout_s, interrupted, waited)
            except AffluxError as error:
                error.operation = about.text
                raise
        except BaseException as error:
            self._fail_with(error)
            raise

    def close(self) -> None:
        """Close the sockets. May be called more than once."""
        self._closed = True
        self._calls.close()
        for line in self._loop.lines:
            line.close()

    def _fail_with(self, error: BaseException) -> None:
        # Not the error: its frames have the call and the group, which would never be freed.
        self._failure = str(error) or type(error).__name__
        self._calls.close()

    def _require_usable(self, call: str) -> None:
        if self._failure:
            jobs = ", ".join(
                f"{line.session.ticket.job} on {line.peer}" for line in self._loop.lines
            )
            raise WorkerFailed(
                f"{call}: rank {self.rank}'s worker of job {jobs} failed earlier: {self._failure}"
            )
        if self._closed:
            raise WorkerFailed(f"{call}: rank {self.rank}'s worker is closed")

    def _start(
        self,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        result: NDArray[Any],
        host: HostPiece,
    ) -> tuple[Operation, ...]:
        """Open an operation's parts, one on each aggregator that has columns of the tensor."""
        lines = self._loop.lines
        # The first aggregators are enough for a small tensor; the others miss the operation.
        number = lines[0].session.number
        parts = _native.sharing(
            int(dtype),
            reduction.number,
            len(elements),
            self.tickets[0].lanes,
            len(lines),
            len(lines[0].session.places),
        )
        operations = []
        for own, line in enumerate(lines[:parts]):
            line.session.number = number
            of_part = (own, parts), self._slots, result, host
            tensor = elements, dtype, reduction, shape
            operations.append(Operation(line.session, *tensor, *of_part))
        self._loop.open(operations)
        return tuple(operations)

    def _run(
        self,
        operations: Sequence[Part],
        timeout_s: float,
        interrupted: Callable[[], str | None],
        waited_s: float = 0.0,
    ) -> None:
        """Wait until operations that have been opened are over."""
        start = now = time.monotonic()
        deadline = start + timeout_s - waited_s
        next_look = start + LOOK_S
        checks = {line: LivenessCheck(line, start) for line, _ in self._lines_of(operations)}
        while pending := [line for line, each in self._lines_of(operations) if not each.done]:
            self._feed(operations, min(next_look, deadline))
            if _over(operations):
                break
            for line, operation in self._lines_of(operations):
                if line.too_long:
                    raise line.packet_too_long()
                if operation.vanishing:
                    raise line.packets_vanish(operation.vanishing)
            now = time.monotonic()
            if now >= deadline:
                silences = [
                    checks[each].silence(now) for each in pending if checks[each].unanswered
                ]
                raise self._too_late(operations, timeout_s, silences)
            if now >= next_look:
                next_look = now + LOOK_S
                # An error that rank 0 has reported says more than one found here.
                reason = interrupted()
                if reason is not None:
                    raise Interrupted(f"rank {self.rank}: {reason}")
                for check in (checks[each] for each in pending):
                    check.look(now)
                    if check.unanswered and check.silent_s(now) >= self._peer_timeout_s:
                        raise AggregatorUnreachable(
                            f"timed out: rank {self.rank}: {check.silence(now)}"
                        )

    def _lines_of(self, operations: Sequence[Part]) -> Iterator[tuple[Line, Part]]:
        return zip(self._loop.lines, operations, strict=False)

    def _feed(self, operations: Sequence[Part], until: float) -> None:
        self._judge(operations, lambda: self._loop.run(until))

    def _judge(self, operations: Sequence[Part], step: Callable[[], None]) -> None:
        loop = self._loop
        try:
            step()
        except (_native.Misbehaved, _native.Disagreed) as error:
            raise operations[loop.serving].judged(error, loop.served.peer) from None

    def _too_late(
        self,
        operations: Sequence[Part],
        timeout_s: float,
        silences: Sequence[str],
    ) -> DeadlineExceeded:
        too_late = timed_out(timeout_s)
        pending = [(line, each) for line, each in self._lines_of(operations) if not each.done]
        if silences:
            return DeadlineExceeded(f"{too_late} at rank {self.rank}: {silences[0]}")
        for line, operation in pending:
            ranks = operation.missing_ranks()
            if ranks:
                names = ", ".join(str(rank) for rank in ranks)
                return RanksMissing(
                    f"{too_late}: rank {self.rank} still waits for the contributions of rank(s) "
                    f"{names} (job {line.session.ticket.job} on the aggregator at {line.peer})",
                    ranks,
                )
        for line, operation in pending:
            if operation.waits_above():
                ticket = line.session.ticket
                elsewhere = sorted(set(range(ticket.size)) - set(ticket.members))
                names = f", rank(s) {', '.join(map(str, elsewhere))}" if ticket.members else ""
                return DeadlineExceeded(
                    f"{too_late} at rank {self.rank}: the aggregator at {line.peer} has the "
                    f"contributions of its own ranks, and waits for its parent: for ranks of other "
                    f"aggregators{names}, or for packets lost on the way"
                )
        peers = ", ".join(line.peer for line, _ in pending)
        return DeadlineExceeded(
            f"{too_late} at rank {self.rank}: the aggregator at {peers} does not report "
            "that a rank is missing"
        )
