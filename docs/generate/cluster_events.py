"""The clusters of `docs.generate.cluster_formulas`, played frame by frame over queues and links.

Each link sends one frame after the other, first come, first served, and delivers it after its
delay. Queues are unbounded, as the window bounds what is in them. Nothing is lost.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence

from docs.generate.cluster_formulas import RING_PAYLOAD_SHARE, RING_PIECES, Cluster

__all__ = ["play", "play_ring"]

Then = Callable[[], None]


class _Clock:
    """Events in order of time; those at the same time in the order they were made."""

    def __init__(self) -> None:
        self.now = 0.0
        self._number = itertools.count()
        self._events: list[tuple[float, int, Then]] = []

    def at(self, time: float, then: Then) -> None:
        heapq.heappush(self._events, (time, next(self._number), then))

    def run(self) -> float:
        while self._events:
            self.now, _, then = heapq.heappop(self._events)
            then()
        return self.now


class _Link:
    """One direction of a cable, with the queue before it."""

    def __init__(self, clock: _Clock, bits_per_s: float, delay_s: float) -> None:
        self._clock, self._rate, self._delay = clock, bits_per_s, delay_s
        self._free = 0.0

    def send(self, size_bytes: float, then: Then) -> None:
        self._free = max(self._free, self._clock.now) + 8 * size_bytes / self._rate
        self._clock.at(self._free + self._delay, then)


class _Engine:
    """Sums what its members send, and sends the result, or the parent's, to all of them.

    A member is the link that leads to it: a worker's, or a leaf's port.
    """

    def __init__(self, clock: _Clock, cluster: Cluster, members: Sequence[_Link]) -> None:
        c = cluster
        self._clock, self._cluster, self._members = clock, c, members
        self.inward = _Link(clock, c.port_bits_per_s, c.link_delay_s)
        self.outward = _Link(clock, c.port_bits_per_s, c.link_delay_s)
        self._came: dict[int, int] = {}
        self.up: Callable[[int], None] | None = None
        self.deliver: Callable[[int, int], None] = lambda member, slot: None

    def contribute(self, slot: int) -> None:
        """Take one member's packet."""
        self._came[slot] = self._came.get(slot, 0) + 1
        if self._came[slot] == len(self._members):
            self._came[slot] = 0
            complete = self.up or self.result
            self._clock.at(self._clock.now + self._cluster.engine_delay_s, lambda: complete(slot))

    def result(self, slot: int) -> None:
        """Send the result to all members, through the port and then the switch."""
        size = self._cluster.down_bytes
        if self._cluster.multicast:
            self.outward.send(size, lambda: self._spread(slot, range(len(self._members))))
            return
        for member in range(len(self._members)):
            self.outward.send(size, lambda member=member: self._spread(slot, [member]))  # type: ignore[misc]

    def _spread(self, slot: int, members: Sequence[int]) -> None:
        for member in members:
            self._members[member].send(
                self._cluster.down_bytes,
                lambda member=member: self.deliver(member, slot),  # type: ignore[misc]
            )


def play(cluster: Cluster, rounds_of_slot: int) -> float:
    """Return the seconds until every worker has the results of so many rounds of each slot.

    Columns are shared out over a star's engines slot by slot.

    Raises:
        ValueError: If workers do not spread evenly over leaves, or slots over engines.
    """
    c = cluster
    if c.slots % c.engines or (c.leaves and (c.workers % c.leaves or c.engines > 1)):
        raise ValueError("workers spread evenly over leaves and slots over engines; one parent")
    clock = _Clock()
    ups = [_Link(clock, c.worker_bits_per_s, c.link_delay_s) for _ in range(c.workers)]
    downs = [_Link(clock, c.worker_bits_per_s, c.link_delay_s) for _ in range(c.workers)]
    if c.leaves:
        group = c.workers // c.leaves
        engines = [
            _Engine(clock, c, downs[leaf * group : (leaf + 1) * group]) for leaf in range(c.leaves)
        ]
        _join(clock, c, engines)
    else:
        group = c.workers
        engines = [_Engine(clock, c, downs) for _ in range(c.engines)]
    left = {
        (worker, slot): rounds_of_slot for worker in range(c.workers) for slot in range(c.slots)
    }

    def engine_of(worker: int, slot: int) -> _Engine:
        return engines[worker // group] if c.leaves else engines[slot % c.engines]

    def contribute(worker: int, slot: int) -> None:
        engine = engine_of(worker, slot)
        ups[worker].send(
            c.up_bytes,
            lambda: engine.inward.send(c.up_bytes, lambda: engine.contribute(slot)),
        )

    def deliver(worker: int, slot: int) -> None:
        left[worker, slot] -= 1
        if left[worker, slot]:
            contribute(worker, slot)

    for number, engine in enumerate(engines):
        first = number * group if c.leaves else 0
        engine.deliver = lambda member, slot, first=first: deliver(first + member, slot)  # type: ignore[misc]
    for slot in range(c.slots):
        for worker in range(c.workers):
            contribute(worker, slot)
    end = clock.run()
    if any(left.values()):
        raise RuntimeError("a slot has stopped")
    return end


def _join(clock: _Clock, cluster: Cluster, leaves: Sequence[_Engine]) -> None:
    """Put a parent above the leaves; they reach it and are reached through their one port."""
    parent = _Engine(clock, cluster, [leaf.inward for leaf in leaves])
    parent.deliver = lambda member, slot: leaves[member].result(slot)
    for leaf in leaves:
        leaf.up = lambda slot, leaf=leaf: leaf.outward.send(
            cluster.down_bytes,
            lambda: parent.inward.send(cluster.down_bytes, lambda: parent.contribute(slot)),
        )


def play_ring(cluster: Cluster, tensor_bytes: float, pieces: int = RING_PIECES) -> float:
    """Return the seconds for a ring whose parts go on in so many pieces as they come."""
    c = cluster
    clock = _Clock()
    steps = 2 * (c.workers - 1)
    size = tensor_bytes / c.workers / pieces / RING_PAYLOAD_SHARE
    links = [_Link(clock, c.worker_bits_per_s, 2 * c.link_delay_s) for _ in range(c.workers)]

    def send(worker: int, step: int) -> None:
        if step < steps:
            after = (worker + 1) % c.workers
            links[worker].send(size, lambda: send(after, step + 1))

    for _ in range(pieces):
        for worker in range(c.workers):
            send(worker, 0)
    return clock.run()
