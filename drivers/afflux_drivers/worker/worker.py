"""A rank's end of a job: joins, runs operations one after the other, and says what went wrong."""

import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

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
)
from afflux_drivers.packets import HEADER, Header, PacketBuffer, datagram_bytes
from afflux_drivers.sockets import MulticastGroup
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session
from afflux_drivers.worker.statistics import WorkerStatistics
from afflux_drivers.worker.transport import UdpTransport
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
        AggregatorUnreachable: If there is no way to the aggregator's address, or to its group.
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
            raise ValueError(f"a time-out is more than 0 s, not {peer_timeout_s}")
        self.ticket = ticket
        self.rank = rank
        self._peer_timeout_s = peer_timeout_s
        # Several probes must fit the time in which their silence is judged.
        self._session = Session(ticket, rank, cap_s=min(1.0, peer_timeout_s / 5))
        self._transport = UdpTransport(
            ticket.host,
            ticket.port,
            self._session.statistics,
            loss,
            MulticastGroup(ticket.group, ticket.group_port) if ticket.group else None,
        )
        self._line = self._transport.line()
        self._packet = PacketBuffer()
        self._failure: BaseException | None = None
        self._joined = False
        self._closed = False

    @property
    def statistics(self) -> WorkerStatistics:
        """What this worker has done so far."""
        self._session.statistics.round_trip_s = self._session.trip.smoothed_s
        return self._session.statistics

    def join(self, timeout_s: float) -> None:
        """Makes this worker's address known to the aggregator.

        Raises:
            AggregatorUnreachable: If no answer comes in time.
            AggregatorRefused: If the aggregator says no, or the job is not what the ticket says.
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
        """Reduces a tensor over all ranks of the job.

        Args:
            elements: 1-D contiguous; float32, float16 and int32 as such, bfloat16 as uint16 bits.
                Not to be changed before the call returns.
            dtype: Type of the elements.
            reduction: What to do with them.
            shape: Shape of the tensor, which all ranks must give alike.
            timeout_s: How long the operation may take, other ranks' delays included.
            interrupted: Asked while waiting, twice a second or more often; a text that it returns
                ends the operation with that text as error.

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

    def close(self) -> None:
        """Closes the socket. May be called more than once."""
        self._closed = True
        self._transport.close()

    def _require_usable(self, call: str) -> None:
        if self._failure is not None:
            raise WorkerFailed(
                f"{call}: rank {self.rank}'s worker of job {self.ticket.job} on "
                f"{self._transport.peer} failed earlier: {self._failure}"
            ) from self._failure
        if self._closed:
            raise WorkerFailed(f"{call}: rank {self.rank}'s worker is closed")

    def _join(self, timeout_s: float) -> None:
        session, transport, packet = self._session, self._transport, self._packet
        trip = session.trip
        start = now = time.monotonic()
        sent_at, sends, wait_s = now, 0, 0.0
        while now < start + timeout_s:
            if sends == 0 or now >= sent_at + wait_s:
                transport.send(session.join_packet())
                sent_at, sends = now, sends + 1
                wait_s = trip.timeout_s if sends == 1 else min(2 * wait_s, trip.cap_s)
            transport.wait(min(sent_at + wait_s, start + timeout_s) - now)
            now = time.monotonic()
            while (length := transport.receive(packet)) >= 0:
                if self._is_joined(length):
                    if sends == 1:
                        trip.sample(sent_at, now)
                    session.heard_at = now
                    return
        refused = " (its host refuses the port)" if transport.refused else ""
        raise AggregatorUnreachable(
            f"join timed out: rank {self.rank} got no answer from the aggregator at "
            f"{transport.peer} in {timeout_s:g} s, {sends} packets sent{refused}"
        )

    def _is_joined(self, length: int) -> bool:
        """Whether the datagram in the buffer confirms the join."""
        statistics = self._session.statistics
        if length != datagram_bytes(0):
            statistics.ignored += 1
            return False
        header = Header._make(HEADER.unpack_from(self._packet.datagram))
        ticket = self.ticket
        ours = (header.job, header.worker, header.key) == (
            ticket.job,
            self._session.worker,
            ticket.key,
        )
        if not ours or header.version != wire.VERSION or header.present:
            statistics.ignored += 1
            return False
        words = self._packet.words.tolist()
        if header.type == wire.Type.REFUSED:
            cause = _REFUSALS.get(words[0], f"cause {words[0]}")
            raise AggregatorRefused(
                f"join: the aggregator at {self._transport.peer} refused rank {self.rank} of job "
                f"{ticket.job}: {cause}"
            )
        if header.type != wire.Type.JOINED:
            statistics.ignored += 1
            return False
        told = [ticket.workers, ticket.lanes, ticket.slots, ticket.credit]
        if words[:4] != told:
            raise AggregatorRefused(
                f"join: the aggregator at {self._transport.peer} says that job {ticket.job} has "
                f"workers, lanes, slots, credit {words[:4]}; rank {self.rank} was told {told}"
            )
        address = socket.inet_ntoa(words[4].to_bytes(4, "big")) if words[4] else ""
        if (address, words[5]) != (ticket.group, ticket.group_port):
            raise AggregatorRefused(
                f"join: the aggregator at {self._transport.peer} sends the results of job "
                f"{ticket.job} to {_group_name(address, words[5])}; rank {self.rank} was told "
                f"{_group_name(ticket.group, ticket.group_port)}"
            )
        return True

    def _run(
        self, operation: Operation, timeout_s: float, interrupted: Callable[[], str | None]
    ) -> None:
        session, transport, line = self._session, self._transport, self._line
        start = now = time.monotonic()
        deadline = start + timeout_s
        next_look = start + _INTERRUPT_EVERY_S
        line.open(session, operation)
        while True:
            silence_ends = max(start, session.heard_at) + self._peer_timeout_s
            until = min(next_look, deadline, silence_ends)
            try:
                operation.judged(partial(line.run, session, operation, until))
            except AggregatorMisbehaved as error:
                raise AggregatorMisbehaved(
                    f"aggregator at {transport.peer}, rank {self.rank}: {error}"
                ) from None
            transport.refused |= line.refused
            if operation.done:
                return
            if line.too_long:
                raise transport.too_long(line.too_long)
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
        timed_out = f"timed out after {timeout_s:g} s"
        ranks = operation.missing_ranks()
        if ranks:
            names = ", ".join(str(rank) for rank in ranks)
            return RanksMissing(
                f"{timed_out}: rank {self.rank} still waits for the contributions of rank(s) {names} "
                f"(job {self.ticket.job} on the aggregator at "
                f"{self._transport.peer})",
                ranks,
            )
        if operation.waits_above():
            elsewhere = sorted(set(range(self.ticket.size)) - set(self.ticket.members))
            names = f", rank(s) {', '.join(map(str, elsewhere))}" if self.ticket.members else ""
            return DeadlineExceeded(
                f"{timed_out} at rank {self.rank}: the aggregator at {self._transport.peer} has "
                "what its own ranks sent, and waits for its parent: "
                f"for ranks of other aggregators{names}, or for the way between"
            )
        return DeadlineExceeded(
            f"{timed_out} at rank {self.rank}: the aggregator at {self._transport.peer} does not "
            "report that a rank is missing"
        )

    def _unreachable(self, silent_s: float) -> AggregatorUnreachable:
        refused = " (its host refuses the port)" if self._transport.refused else ""
        return AggregatorUnreachable(
            f"timed out: rank {self.rank} has heard nothing from the aggregator at "
            f"{self._transport.peer} for {silent_s:.1f} s{refused}"
        )
