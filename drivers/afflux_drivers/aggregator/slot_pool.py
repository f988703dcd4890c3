"""The slots of an engine: how many a new job gets, and where they are."""

from collections.abc import Collection, Iterable

from afflux_drivers import _native
from afflux_drivers.aggregator.job import Job
from afflux_hdl.contract import wire

__all__ = ["BUSY_SLOTS", "SlotPool", "slots_of"]

BUSY_SLOTS = 16
"""So many of 5 lanes keep a path of 1 Gbit/s busy for 0.2 ms: a round trip between processes that
share processors."""


class SlotPool:
    """The slots that all jobs of an engine share.

    Args:
        slots: How many there are.
        room_bytes: The bytes that receive buffers before the engine may charge, for all jobs
            together.
    """

    def __init__(self, slots: int, room_bytes: int) -> None:
        self._slots, self._room_bytes = slots, room_bytes

    def largest_gap(self, jobs: Iterable[Job]) -> tuple[int, int]:
        """Return first slot and length of the longest range that none of these jobs has."""
        best, at = (0, 0), 0
        used = sorted((job.slot_base, job.slots) for job in jobs)
        for base, slots in [*used, (self._slots, 0)]:
            if base - at > best[1]:
                best = at, base - at
            at = base + slots
        return best

    def share(self, jobs: Collection[Job], workers: int, lanes: int) -> int:
        """Return how many slots a job beside these gets by the room for its packets."""
        slot_bytes = workers * _charge(lanes)
        taken = sum(job.workers * job.slots * _charge(job.lanes) for job in jobs)
        # Half of what is left, so that later jobs find some.
        share = (self._room_bytes - taken) // 2 // slot_bytes
        # But enough to keep a path busy, as if the job were alone: most are idle at a time. If they
        # are not and the buffer overflows, it costs time, and the workers' windows shrink.
        alone = self._room_bytes // slot_bytes
        return max(1, share, min(alone, BUSY_SLOTS))


def slots_of(jobs: Iterable[Job]) -> int:
    """Return how many slots these jobs have together."""
    return sum(job.slots for job in jobs)


def _charge(lanes: int) -> int:
    """Return what a full packet is charged to a receive buffer."""
    return _native.datagram_charge(wire.datagram_bytes(lanes))
