"""Probes the paths between hosts: which of them carry packets of data size, and how large ones.

Every host sends packets as long as those with 16, 13, 5 and 4 blocks to every other, unfragmented,
again and again for a bounded time, and notes which of the others' arrive. Both directions of a pair
are probed, and at once: what one host hears is what the path from the other carries. The packets
have the key of the group's incarnation, so nobody else's count.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence

from afflux_drivers.addresses import named, never_fragment, resolve, route_to
from afflux_drivers.sockets import enlarge
from afflux_hdl.contract import wire

__all__ = ["LANES", "PathProbe", "Paths", "run_probes"]

LANES = (16, 13, 5, 4)
"""The sizes to try: jumbo frames, the 3.5 KB of some network cards, 1,500 bytes, and tunnels."""

Paths = dict[int, int]
"""The most lanes that have come from each other host, by its number."""

_HEADER = struct.Struct("!8s16sHH")
_MAGIC = b"afflux?\0"

_BUFFER_BYTES = 4 << 20
_RECEIVE_BYTES = wire.datagram_bytes(wire.LANES_MAX) + 1

_RECEIVE_MOST = 1000

_FIRST_S = 0.01
_LAST_S = 0.1
_ALL_SIZES_AFTER_S = 0.15
"""By then the longest packets have gone out several times: perhaps the path carries none."""

_SETTLED_S = 0.7
"""A path that has carried short packets since the beginning, and no long one, carries none."""

_LIMIT_S = 1.5


class PathProbe:
    """One host's end of all paths of one of its interfaces.

    Args:
        address: Own address.
        key: Of the group's incarnation, 16 bytes.
        own: Number of this host.

    Attributes:
        address: Own address and port.
        found: The probes that have come from the others so far; empty before `begin`.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(self, address: str, key: bytes, own: int) -> None:
        self._key = key
        self._own = own
        self._peers: Mapping[int, tuple[str, int]] = {}
        self._expected: Paths = {}
        self.found: Paths = {}
        family, where = resolve(address, 0)[0]
        self._udp = socket.socket(family, socket.SOCK_DGRAM)
        try:
            enlarge(self._udp, _BUFFER_BYTES)
            never_fragment(self._udp)
            self._udp.setblocking(False)
            self._udp.bind(where)
        except OSError as error:
            self._udp.close()
            raise OSError(f"cannot bind UDP on {address}: {error.strerror}") from error
        self.address = named(self._udp.getsockname())

    def close(self) -> None:
        """Close the socket. May be called more than once."""
        self._udp.close()

    def fileno(self) -> int:
        """Return the socket's number."""
        return self._udp.fileno()

    def begin(self, peers: Mapping[int, tuple[str, int]]) -> None:
        """Note where the others are: their addresses and ports, by number of the host."""
        self._peers = peers
        self._expected = {number: _lanes_of_route(peer) for number, peer in peers.items()}
        self.found = dict.fromkeys(peers, 0)

    def complete(self, settled: bool) -> bool:
        """Whether no more can come: the longest packets from all, or something if `settled`."""
        return all(
            lanes >= self._expected[number] or (settled and lanes > 0)
            for number, lanes in self.found.items()
        )

    def send(self, all_sizes: bool) -> None:
        """Send the longest packets that the own end carries to all others, or all sizes."""
        for number, peer in self._peers.items():
            self._send(peer, self._expected[number], all_sizes)

    def _send(self, peer: tuple[str, int], most: int, all_sizes: bool) -> None:
        sizes = [lanes for lanes in LANES if lanes <= most]
        for lanes in sizes if all_sizes else sizes[:1]:
            header = _HEADER.pack(_MAGIC, self._key, self._own, lanes)
            # Full buffers lose it, as a network does; and a packet too long for a path that has
            # reported its MTU meanwhile does not go out.
            with contextlib.suppress(OSError):
                self._udp.sendto(header.ljust(wire.datagram_bytes(lanes), b"\0"), peer)

    def receive(self) -> None:
        """Take what has come."""
        # As many as there may be of honest ones; a flood must not keep this host from its clock.
        for _ in range(_RECEIVE_MOST):
            try:
                packet = self._udp.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                # The kernel reports that an earlier packet of ours was refused or too long.
                continue
            if len(packet) < _HEADER.size:
                continue
            magic, key, number, lanes = _HEADER.unpack_from(packet)
            if (
                (magic, key) != (_MAGIC, self._key)
                or number not in self.found
                or lanes not in LANES
            ):
                continue
            if len(packet) == wire.datagram_bytes(lanes):
                self.found[number] = max(self.found[number], lanes)


def run_probes(
    probes: Sequence[PathProbe],
    heard: Callable[[], None],
    finished: Callable[[], bool],
    limit_s: float = _LIMIT_S,
) -> None:
    """Probe until everybody has heard all there is to hear, or for `limit_s`.

    Args:
        probes: Of this host's interfaces, which have begun.
        heard: Called once, as soon as no more is expected.
        finished: Whether all other hosts have reported what they have heard.
        limit_s: How long at most.
    """
    reported = False
    # select takes no number beyond 1023.
    waiting = select.poll()
    for probe in probes:
        waiting.register(probe, select.POLLIN)
    start = time.monotonic()
    next_send, pause_s = start, _FIRST_S
    while True:
        now = time.monotonic()
        settled, over = now - start >= _SETTLED_S, now - start >= limit_s
        if over:
            # A host that was held up until now has not looked at what came meanwhile.
            for probe in probes:
                probe.receive()
        if not reported and (over or all(each.complete(settled) for each in probes)):
            heard()
            reported = True
        if reported and (over or finished()):
            return
        if now >= next_send:
            all_sizes = now - start >= _ALL_SIZES_AFTER_S
            for probe in probes:
                probe.send(all_sizes)
            next_send = now + pause_s
            pause_s = min(pause_s * 2, _LAST_S)
        wait_s = min(next_send, start + limit_s) - time.monotonic()
        # Reports of others come through the store, which is asked in between.
        if waiting.poll(1e3 * max(0.0, min(wait_s, 0.005))):
            for probe in probes:
                probe.receive()


def _lanes_of_route(peer: tuple[str, int]) -> int:
    """Return the most of `LANES` that the own end of the route to a host carries; 0 for none."""
    try:
        fit = route_to(*peer).lanes
    except (OSError, ValueError):
        return 0
    return max((lanes for lanes in LANES if lanes <= fit), default=0)
