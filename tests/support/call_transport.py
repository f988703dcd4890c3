"""The way to a board that is a function."""

from collections import deque
from collections.abc import Callable, Iterable

__all__ = ["CallTransport"]


class CallTransport:
    """A function stands for network and board, as in simulations. Nothing takes time.

    Args:
        exchange: Takes a datagram and returns those that come of it.
    """

    def __init__(self, exchange: Callable[[bytes], Iterable[bytes]]) -> None:
        self._exchange = exchange
        self._answers: deque[bytes] = deque()

    def send(self, payload: bytes) -> None:
        """Send a datagram."""
        self._answers.extend(self._exchange(payload))

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next datagram from the board, or None if there is none."""
        return self._answers.popleft() if self._answers else None

    def close(self) -> None:
        """Do nothing: nothing is held."""
