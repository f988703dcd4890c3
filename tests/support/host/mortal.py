"""An aggregator that dies at a chosen result packet, after which only one rank has heard more.

A proxy in front of a real one, so that a test says at which packet it ends. Then its ports refuse,
as those of a process that was killed.

with Mortal(url, favoured=0, results=40) as mortal:
    ... mortal.url
"""

import time

from afflux_hdl.contract import wire
from tests.support.host.proxy import Address, Proxy

__all__ = ["Mortal", "Starving"]

_INSIDE = "127.0.0.99"
_QUIET_S = 0.1
"""When nothing has come for so long, the favoured rank has all that there is."""


class Mortal(Proxy):
    """Dies when a rank has got so many results.

    Args:
        url: Of the aggregator.
        favoured: The rank whose results are counted, and who alone gets results after these.
        results: How many, in all operations.
        silent: Whether its host is cut off, and refuses nothing.

    Attributes:
        died_at: When it has, in seconds of the monotonic clock; None before.
    """

    def __init__(self, url: str, favoured: int, results: int, silent: bool = False) -> None:
        super().__init__(url, _INSIDE)
        self._favoured = favoured
        self._left = results
        self._silent = silent
        self.died_at: float | None = None
        self._last_s = 0.0

    def goes_on(self) -> bool:
        """Return whether it lives; close its ports when it dies."""
        if self._left <= 0 and time.monotonic() - self._last_s >= _QUIET_S:
            self.died_at = time.monotonic()
            if not self._silent:
                self.close_ports()
        return self.died_at is None

    def to_worker(self, data: bytes, worker: Address) -> None:
        """Pass a datagram on, unless it is a result that only the favoured rank gets."""
        if data[0] & 0xF == wire.Type.RESULT:
            favours = data[3] == self._favoured
            if self._left <= 0 and not favours:
                return
            if favours:
                self._left -= 1
                self._last_s = time.monotonic()
        super().to_worker(data, worker)


class Starving(Mortal):
    """One that lives on for a while when a rank gets no more results, and all others get theirs.

    Args:
        url: Of the aggregator.
        starved: The rank.
        results: How many it gets.
        lasts_s: How long it lives when the others have got their last one.
    """

    def __init__(self, url: str, starved: int, results: int, lasts_s: float) -> None:
        super().__init__(url, starved, results)
        self._lasts_s = lasts_s

    def goes_on(self) -> bool:
        """Return whether it lives; close its ports when it dies."""
        return time.monotonic() - self._last_s < self._lasts_s or super().goes_on()

    def to_worker(self, data: bytes, worker: Address) -> None:
        """Pass a datagram on, unless it is a result for the rank that starves."""
        if data[0] & 0xF == wire.Type.RESULT:
            if data[3] != self._favoured:
                self._last_s = time.monotonic()
            elif self._left <= 0:
                return
            else:
                self._left -= 1
        Proxy.to_worker(self, data, worker)
