"""Limits for each peer of a control channel: what one address may hold, and how fast it may ask."""

import math
import time
from dataclasses import dataclass

from afflux_drivers.addresses import peer_name

__all__ = ["PEER_SHARE", "REQUESTS_PER_S", "Peer", "Peers", "may_take"]

PEER_SHARE = 0.875
REQUESTS_PER_S = 500.0

_BURST_S = 2.0
_KEPT = 1024


def may_take(has: int, free: int, share: float) -> int:
    """Return how many more of a pool a peer may take.

    It may take one more for as long as it has less than share / (1 − share) times what is free: the
    dynamic threshold of shared packet buffers (Choudhury and Hahne, 1998). So one that is alone
    gets `share` of the pool, a second one as much of the rest, and no number has to be set by how
    many there are.

    Args:
        has: The peer's count.
        free: The number that nobody has.
        share: More than 0, at most 1.
    """
    # Sums of binary fractions: exact for the shares that matter.
    return max(0, min(free, math.ceil(share * free - (1 - share) * has)))


@dataclass(eq=False)
class Peer:
    """One peer.

    Attributes:
        name: See `peer_name`.
        connections: Its connections that the operator serves.
        strangers: Its connections that have not yet shown that they are to be served.
        tokens: Requests that it may send at once.
        filled_at: When `tokens` was right, on the monotonic clock.
    """

    name: str
    connections: int = 0
    strangers: int = 0
    tokens: float = 0.0
    filled_at: float = 0.0


class Peers:
    """The peers of one control channel, and how fast each may ask (a token bucket each).

    Args:
        requests_per_s: Of each peer, in the long run. It may send those of two seconds at once.
    """

    def __init__(self, requests_per_s: float) -> None:
        self._rate = requests_per_s
        self._burst = max(1.0, requests_per_s * _BURST_S)
        self._peers: dict[str, Peer] = {}

    def get(self, address: str) -> Peer:
        """Return the peer that has this address."""
        name = peer_name(address)
        found = self._peers.get(name)
        if found is None:
            if len(self._peers) >= _KEPT:
                self._forget()
            found = Peer(name, tokens=self._burst, filled_at=time.monotonic())
            self._peers[name] = found
        return found

    def take(self, peer: Peer) -> bool:
        """Count one request and return True, or return False if it comes too early."""
        self._fill(peer)
        if peer.tokens < 1.0:
            return False
        peer.tokens -= 1.0
        return True

    def due_s(self, peer: Peer) -> float:
        """Return in how many seconds the next request may come."""
        self._fill(peer)
        return max(0.0, (1.0 - peer.tokens) / self._rate)

    def _fill(self, peer: Peer) -> None:
        now = time.monotonic()
        peer.tokens = min(self._burst, peer.tokens + (now - peer.filled_at) * self._rate)
        peer.filled_at = now

    def _forget(self) -> None:
        """Forget the peers that are as good as new."""
        for name, peer in list(self._peers.items()):
            self._fill(peer)
            idle = not peer.connections and not peer.strangers
            if idle and peer.tokens >= self._burst:
                del self._peers[name]
