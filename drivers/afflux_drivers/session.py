"""What a worker keeps of a job run from one operation to the next. No sockets, no clock."""

from afflux_drivers.packets import ALL_ABSENT, HEADER, PacketBuffer, datagram_bytes
from afflux_drivers.round_trip import RoundTrip
from afflux_drivers.slot import Slot
from afflux_drivers.statistics import WorkerStatistics
from afflux_drivers.ticket import JobTicket
from afflux_hdl import wire

__all__ = ["Session"]

_VERSION = wire.VERSION << 4


class Session:
    """One worker's part in a job run.

    Args:
        ticket: The job run.
        rank: Own rank, one of the ticket's.
        cap_s: Longest time-out between repeated packets.

    Attributes:
        ticket: The job run.
        rank: Own rank.
        worker: Own worker number at the aggregator.
        slots: The job's slots, with their rounds.
        trip: Estimator of the time-out.
        statistics: What has been done so far.
        number: Number of the next operation.
        heard_at: When the aggregator's last packet with this job's key came, in seconds.

    Raises:
        ValueError: If the rank is not one of the job's, or the ticket is out of range.
    """

    def __init__(self, ticket: JobTicket, rank: int, cap_s: float = 1.0) -> None:
        if not 1 <= ticket.workers <= wire.WORKERS_MAX:
            raise ValueError(f"a job has 1 to {wire.WORKERS_MAX} workers, not {ticket.workers}")
        if not 1 <= ticket.lanes <= wire.LANES_MAX:
            raise ValueError(f"a job has 1 to {wire.LANES_MAX} lanes, not {ticket.lanes}")
        if not 1 <= ticket.slots <= 1 << 16:
            raise ValueError(f"a job has 1 to 65536 slots, not {ticket.slots}")
        if not ticket.size <= wire.WORKERS_MAX:
            raise ValueError(f"sums are of 1 to {wire.WORKERS_MAX} ranks, not {ticket.size}")
        self.ticket = ticket
        self.rank = rank
        self.worker = ticket.worker_of(rank)
        self.slots = [Slot(n, ticket.round, ticket.lanes) for n in range(ticket.slots)]
        self.trip = RoundTrip(cap_s)
        self.statistics = WorkerStatistics()
        self.number = 0
        self.heard_at = float("-inf")
        self._short = PacketBuffer(0)
        self._short_bytes = datagram_bytes(0)

    def join_packet(self) -> memoryview:
        """A JOIN. Valid until the next short packet is made."""
        ticket = self.ticket
        version_type = _VERSION | wire.Type.JOIN
        self._short.datagram[wire.HEADER_BYTES : self._short_bytes] = ALL_ABSENT
        HEADER.pack_into(
            self._short.datagram,
            0,
            version_type,
            0,
            ticket.job,
            self.worker,
            0,
            0,
            0,
            ticket.key,
            0,
        )
        return self._short.datagram[: self._short_bytes]

    def probe_packet(self, slot: Slot, opcode_dtype: int) -> memoryview:
        """A PROBE for the slot's outstanding round. Valid until the next short packet is made."""
        ticket = self.ticket
        HEADER.pack_into(
            self._short.datagram,
            0,
            _VERSION | wire.Type.PROBE,
            opcode_dtype,
            ticket.job,
            self.worker,
            slot.number,
            0,
            slot.round,
            ticket.key,
            self.number & 0xFFFF,
        )
        return self._short.datagram[: self._short_bytes]
