"""The cost of an all-reduce on a star, several engines, a tree and a ring: formulas.

`docs/scaling.md` explains them. `docs.generate.cluster_events` plays the same clusters frame
by frame, and a test compares.

Links are full duplex. Tensors are long: the extra time of their first and last frames is left out.
"""

import math
from dataclasses import dataclass, replace

from afflux_hdl.contract import wire

__all__ = [
    "RING_PAYLOAD_SHARE",
    "RING_PIECES",
    "Cluster",
    "all_reduce_s",
    "ring_s",
    "round_trip_s",
    "slots_needed",
    "traffic_bytes",
    "union_density",
]

OVERHEAD_BYTES = 24
"""Preamble and start 8, frame check sequence 4, gap 12 (IEEE 802.3)."""

RING_PAYLOAD_SHARE = 8948 / 9038
"""TCP with time stamps in 9,000-byte packets: 8,948 of 9,038 bytes of wire."""

RING_PIECES = 8
"""Pieces in which a ring's part is sent."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Workers, links and engines.

    Attributes:
        workers: N. A ring has all of them; a tree spreads them evenly over its leaves.
        worker_bits_per_s: L, rate of each worker's link.
        port_bits_per_s: R, rate of each engine's port.
        engines: K, engines that share the columns; with leaves, those at the top of the tree.
        leaves: Engines below a parent, one for each group of workers; 0: a star.
        multicast: Results go out once, and the switch copies them.
        lanes: F.
        slots: Active slots, the workers' window.
        density: Share of blocks that are present at a worker.
        union: Share of blocks that are present at any worker.
        link_delay_s: Propagation and switching, for each hop between two ends.
        engine_delay_s: From the last beat of a round's last contribution to its result.
    """

    workers: int
    worker_bits_per_s: float = 100e9
    port_bits_per_s: float = 100e9
    engines: int = 1
    leaves: int = 0
    multicast: bool = False
    lanes: int = wire.LANES_MAX
    slots: int = 64
    density: float = 1.0
    union: float = 1.0
    link_delay_s: float = 2e-6
    engine_delay_s: float = 0.4e-6

    @property
    def up_bytes(self) -> float:
        """Bytes of wire of a mean contribution: each lane's agreed block, if the worker has it."""
        return self._frame(self.lanes * self.density / self.union)

    @property
    def down_bytes(self) -> float:
        """Bytes of wire of a result: in each lane the next block of the union."""
        return self._frame(self.lanes)

    def rounds(self, tensor_bytes: float) -> float:
        """Return the rounds of all slots together, without the opening rounds."""
        return self.union * tensor_bytes / (self.lanes * wire.BLOCK_BYTES)

    @staticmethod
    def _frame(blocks: float) -> float:
        return wire.FRAME_BYTES_MIN + OVERHEAD_BYTES + blocks * wire.BLOCK_BYTES


def union_density(density: float, workers: int) -> float:
    """Return the share of blocks that any worker has, if each has its own at random."""
    return 1 - (1 - density) ** workers


def traffic_bytes(cluster: Cluster) -> dict[str, float]:
    """Return a round's bytes on the busiest link of each kind, on its busier side."""
    c = cluster
    up, down = c.up_bytes, c.down_bytes
    copies: float = 1 if c.multicast else c.workers
    if not c.leaves:
        port = max(c.workers * up, copies * down) / c.engines
        return {"worker": max(up, down), "port": port}
    group = c.workers / c.leaves
    # A leaf's sum covers the union of its workers' blocks; taken as the whole union here.
    copies = 1 if c.multicast else group
    leaf = max(group * up + down, down + copies * down)
    top = max(c.leaves * down, (1 if c.multicast else c.leaves) * down) / c.engines
    return {"worker": max(up, down), "leaf": leaf, "port": top}


def all_reduce_s(cluster: Cluster, tensor_bytes: float) -> float:
    """Return the seconds for a tensor: of the busiest link, or of what the window allows."""
    c = cluster
    loads = traffic_bytes(c)
    links = max(
        8 * size / (c.worker_bits_per_s if name == "worker" else c.port_bits_per_s)
        for name, size in loads.items()
    )
    window = round_trip_s(c) / c.slots
    return c.rounds(tensor_bytes) * max(links, window)


def round_trip_s(cluster: Cluster) -> float:
    """Return the seconds of one round of one slot, all workers at once, nothing else under way."""
    c = cluster
    up, down = 8 * c.up_bytes, 8 * c.down_bytes
    worker, port = c.worker_bits_per_s, c.port_bits_per_s
    copies: float
    if not c.leaves:
        copies = 1 if c.multicast else c.workers
        # The last contribution waits for the others at the port, the last result likewise.
        sending = up / worker + c.workers * up / port + copies * down / port + down / worker
        return sending + 4 * c.link_delay_s + c.engine_delay_s
    group = c.workers / c.leaves
    copies = 1 if c.multicast else group
    sending = up / worker + group * up / port + copies * down / port + down / worker
    above = (2 + c.leaves + (1 if c.multicast else c.leaves)) * down / port
    return sending + above + 8 * c.link_delay_s + 3 * c.engine_delay_s


def slots_needed(cluster: Cluster) -> int:
    """Return the slots that keep the busiest link busy: round trip over a round's time on it."""
    c = cluster
    one = all_reduce_s(replace(c, slots=10**9), 1e9) / c.rounds(1e9)
    return math.ceil(round_trip_s(c) / one)


def ring_s(cluster: Cluster, tensor_bytes: float, pieces: int = RING_PIECES) -> float:
    """Return the seconds for a ring: 2 (N - 1) steps, each with an N-th of the (dense) tensor.

    A part goes on in pieces: delays hide behind the other pieces, if these take longer.
    """
    c = cluster
    steps = 2 * (c.workers - 1)
    part = 8 * tensor_bytes / c.workers / RING_PAYLOAD_SHARE / c.worker_bits_per_s
    return steps * max(part, part / pieces + 2 * c.link_delay_s)
