"""Several aggregators as one: a job at the parent, and a job at each leaf that is its worker.

One process, rank 0's, creates all of them over their control channels; so the aggregators need no
settings of their own, and all jobs end with that process (protocol, sections 5.6 and 10).
"""

from collections.abc import Sequence
from dataclasses import replace

from afflux_drivers.addresses import authority, resolve
from afflux_drivers.control.client import JobLease, create_job
from afflux_drivers.control.several import JobsLease, close_all
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.errors import AggregatorRefused, AggregatorUnreachable
from afflux_hdl.contract import wire

__all__ = ["create_tree"]

_TRIES = 4


def create_tree(
    parent: tuple[str, int],
    leaves: Sequence[tuple[str, int]],
    lanes: int,
    slots: int,
    timeout_s: float,
    secret: bytes | None = None,
    lease_s: int = 0,
) -> JobsLease:
    """Create the jobs of a tree of two levels.

    Args:
        parent: Host and port of the aggregator above.
        leaves: Host and port of each rank's aggregator, by rank.
        lanes: Most lanes.
        slots: Most slots.
        timeout_s: Timeout for each answer, and for each leaf to join its parent.
        secret: Of all the aggregators; None if they have none.
        lease_s: Seconds after which a job is to end unless it is renewed; 0: it need not be.

    Raises:
        ValueError: If there are no ranks or too many, or the parent is one of the leaves.
        AggregatorUnreachable: If one does not answer in time, neither us nor its child.
        NotAuthenticated: If one has another secret.
        AggregatorRefused: If one refuses, or they cannot agree on lanes and slots.
        AggregatorMisbehaved: If an answer makes no sense.
    """
    if not 1 <= len(leaves) <= wire.WORKERS_MAX:
        raise ValueError(f"a tree must have 1 to {wire.WORKERS_MAX} ranks, not {len(leaves)}")
    if parent in leaves:
        raise ValueError(f"the aggregator at {authority(*parent)} cannot be its own parent")
    members: dict[tuple[str, int], list[int]] = {}
    for rank, leaf in enumerate(leaves):
        members.setdefault(leaf, []).append(rank)
    wish = lanes, slots
    for _ in range(_TRIES):
        leases: list[JobLease] = []
        try:
            granted = _create_all(parent, members, wish, timeout_s, leases, secret, lease_s)
            if granted == wish:
                for lease in leases[:-1]:
                    lease.join_parent(timeout_s)
                tickets = [
                    replace(lease.ticket, members=tuple(ranks), ranks=len(leaves))
                    for lease, ranks in zip(leases[:-1], members.values(), strict=True)
                ]
                return JobsLease(leases, tickets)
        except BaseException:
            close_all(leases)
            raise
        # Slots, lanes and rounds are the same in the whole tree: again, with what all can give.
        close_all(leases)
        wish = granted
    raise AggregatorRefused(
        f"the aggregators of a tree under {authority(*parent)} grant ever less: now {wish[0]} "
        f"lanes and {wish[1]} slots"
    )


def _create_all(
    parent: tuple[str, int],
    members: dict[tuple[str, int], list[int]],
    wish: tuple[int, int],
    timeout_s: float,
    leases: list[JobLease],
    secret: bytes | None,
    lease_s: int,
) -> tuple[int, int]:
    """Create the jobs, leaves first in `leases`; return the lanes and slots that all have."""
    top = create_job(
        parent, len(members), *wish, timeout_s, to_each=True, secret=secret, lease_s=lease_s
    )
    leases.append(top)
    above = top.ticket
    granted = above.lanes, above.slots
    try:
        address = resolve(above.host, above.port)[0].host
    except OSError as error:
        raise AggregatorUnreachable(f"{above.host} has no address: {error}") from error
    for number, (leaf, ranks) in enumerate(members.items()):
        job = ParentJob(address, above.port, above.job, above.key, number, above.round)
        lease = create_job(
            leaf,
            len(ranks),
            above.lanes,
            above.slots,
            timeout_s,
            job,
            secret=secret,
            lease_s=lease_s,
        )
        leases.insert(number, lease)
        granted = min(granted[0], lease.ticket.lanes), min(granted[1], lease.ticket.slots)
    return granted
