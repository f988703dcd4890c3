"""An aggregator of streams that dies at a chosen piece of results, which some ranks lack.

A proxy in front of a real one, so that a test says at which piece it ends. Then its port refuses,
as that of a process that was killed.

with MortalStreams(url, favoured=0, results=40) as mortal:
    ... mortal.url
"""

import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.support.host.proxy import Proxy

__all__ = ["MortalStreams"]

_INSIDE = "127.0.0.98"
_QUIET_S = 0.1
"""When nothing has come for so long, the favoured rank has all that there is."""

# docs/streams.md: the handshake's frames in both directions, and where a claim has the rank.
_CLAIM_END = 48 + 125
_RANK_AT = 48 + 65 + 32 + 8
_VERDICT_END = 97 + 66
_HEAD = struct.Struct("<IIIBBBB")
_RESULT = 3


@dataclass
class _Link:
    """One rank's stream."""

    up: bytes = b""
    down: bytes = b""
    greeting: int = _VERDICT_END
    cut: bool = False
    inside: socket.socket | None = field(default=None, repr=False)

    @property
    def rank(self) -> int:
        return int.from_bytes(self.up[_RANK_AT:][:4], "big")


class MortalStreams(Proxy):
    """Dies when a rank has got so many pieces of results.

    Args:
        url: Of the aggregator.
        favoured: That rank.
        results: How many, in all operations.
        lag: How many fewer the other ranks get. An aggregator sums no more than 16 pieces beyond.
        alike: Whether the favoured one gets none after these; else it gets what there is.
        fraction: How much of one more each rank gets that gets no more.

    Attributes:
        died_at: When it has, in seconds of the monotonic clock; None before.
    """

    def __init__(
        self,
        url: str,
        favoured: int,
        results: int,
        lag: int = 1,
        alike: bool = False,
        fraction: float = 0.5,
    ) -> None:
        super().__init__(url, _INSIDE)
        self._favoured = favoured
        self._results = results
        self._lag = lag
        self._alike = alike
        self._got: Counter[int] = Counter()
        self._fraction = fraction
        self._links: dict[socket.socket, _Link] = {}
        self._last_s = 0.0
        self.died_at: float | None = None

    def goes_on(self) -> bool:
        """Return whether it lives; close its ports when it dies."""
        has_all = self._got[self._favoured] >= self._results
        if has_all and time.monotonic() - self._last_s >= _QUIET_S:
            self.died_at = time.monotonic()
            self.close_ports()
        return self.died_at is None

    def connected(self, inside: socket.socket, outside: socket.socket) -> None:
        """Follow a new stream."""
        self._links[inside] = self._links[outside] = _Link(inside=inside)

    def passing(self, data: bytes, source: socket.socket) -> bytes:
        """Return what is to be passed on of data that have come."""
        link = self._links[source]
        if source is link.inside:
            if len(link.up) < _CLAIM_END:
                link.up += data
            return data
        # The handshake goes on as it comes.
        passed = data[: link.greeting]
        link.greeting -= len(passed)
        link.down += data[len(passed) :]
        while (message := self._next(link)) is not None:
            passed += message
        return passed

    def _next(self, link: _Link) -> bytes | None:
        """Take the next message of a stream if it is there as a whole."""
        if len(link.down) < _HEAD.size:
            return None
        payload, _, _, kind, *_ = _HEAD.unpack_from(link.down)
        end = _HEAD.size + payload
        if len(link.down) < end:
            return None
        message, link.down = link.down[:end], link.down[end:]
        if link.cut:
            return b""
        if kind != _RESULT:
            return message
        favoured = link.rank == self._favoured
        most = self._results - (0 if favoured else self._lag)
        if self._got[link.rank] >= most and (self._alike or not favoured):
            link.cut = True
            return message[: int(self._fraction * len(message))]
        self._got[link.rank] += 1
        self._last_s = time.monotonic()
        return message
