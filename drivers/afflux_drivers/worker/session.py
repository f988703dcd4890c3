"""A worker's state that lasts for a job run. No sockets, no clock."""

from afflux_drivers import _native
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.sockets import MulticastGroup
from afflux_drivers.worker.statistics import WorkerStatistics

__all__ = ["Session", "group_of"]


def group_of(ticket: JobTicket) -> MulticastGroup | None:
    """Return the multicast group of a job's results, None if each worker gets its own."""
    return MulticastGroup(ticket.group, ticket.group_port) if ticket.group else None


class Session(_native.Session):
    """One worker's part in a job run: in C++ (`drivers/native/worker`), but for names.

    Args:
        ticket: The job run.
        rank: Own rank, one of the ticket's.
        cap_s: Longest timeout.
        reduced: Whether the elements of each worker's ranks are reduced before they come here: to
            the job's workers it is then one rank.

    Attributes:
        ticket: The job run.
        rank: Own rank.
        ranks: Those whose elements are sent here, the own one first; if they are reduced before,
            only that.
        places: The ranks that have each place in fingerprints, and side by side.
        worker: Own worker number at the aggregator.
        slots: The job's slots, with their rounds.
        trip: Estimator of the timeout.
        number: Number of the next operation.
        heard_at: When the aggregator's last packet with this job's key came, in seconds.

    Raises:
        ValueError: If the rank is not one of the job's, or the ticket is out of range.
    """

    def __init__(
        self, ticket: JobTicket, rank: int, cap_s: float = 1.0, *, reduced: bool = False
    ) -> None:
        self.ticket = ticket
        self.rank = rank
        self.worker = ticket.worker_of(rank)
        self.ranks = (rank,) if reduced else ticket.ranks_of(self.worker)
        self.places = (
            [ticket.ranks_of(worker) for worker in range(ticket.workers)]
            if reduced
            else [(each,) for each in range(ticket.size)]
        )
        group = group_of(ticket)
        super().__init__(
            ticket.job,
            ticket.key,
            ticket.round,
            ticket.workers,
            ticket.lanes,
            ticket.slots,
            self.worker,
            self.worker if reduced else rank,
            len(self.places),
            ticket.credit,
            *(group.words if group else (0, 0)),
            cap_s,
            ticket.ranges,
            sum(1 << each for each in self.ranks[1:]),
            # The bytes of a packet count; gateware takes no others than those of 64 bits.
            40 if ticket.engine == "soft" else 64,
        )

    @property
    def statistics(self) -> WorkerStatistics:
        """The counts so far. Any thread may ask."""
        return WorkerStatistics(**self.counts(), round_trip_s=self.trip.smoothed_s)
