"""Jobs at several aggregators, of which each has a share of the columns (protocol, section 3)."""

import contextlib
from collections.abc import Sequence

from afflux_drivers.control.client import JobLease, create_job
from afflux_drivers.control.renewal import Renewal
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError, AggregatorRefused

__all__ = ["JobsLease", "close_all", "create_jobs"]

_TRIES = 4


class JobsLease:
    """Jobs that make one sum together, for as long as they are not closed.

    Those with a lease are renewed by a thread of this process.

    Attributes:
        tickets: Data that the ranks need to take part.
    """

    def __init__(self, leases: Sequence[JobLease], tickets: Sequence[JobTicket]) -> None:
        self._leases = leases
        self._renewal = Renewal(leases)
        self.tickets = tickets

    @property
    def lost(self) -> str | None:
        """Why a job is over before its time; None if none is."""
        return self._renewal.lost

    def close(self) -> None:
        """End all jobs. May be called more than once.

        Raises:
            AffluxError: The error of the first one that cannot be ended properly.
        """
        self._renewal.stop()
        failure: AffluxError | None = None
        for lease in self._leases:
            try:
                lease.close()
            except AffluxError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def create_jobs(
    addresses: Sequence[tuple[str, int]],
    workers: int,
    lanes: int,
    slots: int,
    timeout_s: float,
    secret: bytes | None = None,
    lease_s: int = 0,
) -> JobsLease:
    """Create a job of the same ranks at each aggregator, all with as many lanes.

    Args:
        addresses: Hosts and ports of the control channels. The first so many share the columns of
            a tensor that is too short for all.
        workers: N.
        lanes: Most lanes.
        slots: Most slots. The ranks use the least that has been granted.
        timeout_s: Timeout for each answer.
        secret: Of all the aggregators; None if they have none.
        lease_s: Seconds after which a job is to end unless it is renewed; 0: it need not be.

    Raises:
        AggregatorUnreachable: If one does not answer in time.
        NotAuthenticated: If one has another secret.
        AggregatorRefused: If one refuses, or they cannot agree on lanes.
        AggregatorMisbehaved: If an answer makes no sense.
    """
    for _ in range(_TRIES):
        leases: list[JobLease] = []
        try:
            for address in addresses:
                leases.append(
                    create_job(
                        address, workers, lanes, slots, timeout_s, secret=secret, lease_s=lease_s
                    )
                )
        except BaseException:
            close_all(leases)
            raise
        granted = min(lease.ticket.lanes for lease in leases)
        if all(lease.ticket.lanes == granted for lease in leases):
            return JobsLease(leases, [lease.ticket for lease in leases])
        # Again, with what all can give.
        close_all(leases)
        lanes = granted
    raise AggregatorRefused(f"the aggregators grant ever fewer lanes: now {lanes}")


def close_all(leases: Sequence[JobLease]) -> None:
    """Close what has been created so far, because the rest could not be."""
    for lease in leases:
        # It ends with the connection in any case.
        with contextlib.suppress(AffluxError):
            lease.close()
