"""A job of an engine, as its operator knows it."""

from dataclasses import dataclass

from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.sockets import MulticastGroup

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """A job as it was created.

    Attributes:
        number: Job number.
        key: Secret, 64 bits.
        round: First round r0.
        workers: N.
        lanes: F.
        slot_base: First slot in the pool.
        slots: Number of slots.
        credit: Packets that a worker may have in flight.
        parent: The aggregator above, or None.
        group: Where results go, once for all workers; None if they go to each.
        group_key: Key of these results, which JOINED tells the workers; 0 without a group.
        peer: The peer of the control channel that it counts for; empty for none.
        lease_s: Seconds without a renewal after which it ends; 0 if it needs none.
    """

    number: int
    key: int
    round: int
    workers: int
    lanes: int
    slot_base: int
    slots: int
    credit: int
    parent: ParentJob | None
    group: MulticastGroup | None
    group_key: int
    peer: str = ""
    lease_s: int = 0
