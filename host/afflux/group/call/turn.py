"""Whose turn it is in a group: one thread at a time uses its reducer and its Gloo collectives."""

import threading

__all__ = ["Turn"]

_MULTIPLIER = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1

_LOOK_S = 0.02
"""Only C++ hands the turn over, and it has a turn of its own: nobody waits for so long."""


class Turn:
    """The turn of one group at one rank, and the count of the operations that had it.

    Ranks that order operations differently wait for one another for ever, and two threads that
    share a Gloo group can mix up its messages. So whoever carries out an operation has the turn
    from before its first step until after its last.

    Attributes:
        pending: Operations that wait in the queue; a synchronous call stays behind them.
        closed: Whether the group takes no more operations; the reason is the progress's to give.
        sequence: Number of the latest operation, from 1; 0 before the first.
        latest: That operation in words.
        running: Whether it is in progress.
        history: 64 bits that stand for all calls to Gloo so far, and their order.
        engine_operations: Operations that the reducer has carried out.
    """

    def __init__(self) -> None:
        self.engine_operations = 0
        self.pending = 0
        self.closed = False
        self.sequence = 0
        self.latest = ""
        self.running = False
        self.history = 0
        self._counting = threading.RLock()
        self._lock = threading.Lock()
        self._owner = 0
        self._handed = False

    def try_enter(self) -> bool:
        """Take the turn if nobody has it and nobody waits in the queue."""
        if self.pending or not self._lock.acquire(False):
            return False
        self._owner = threading.get_ident()
        return True

    def enter(self) -> bool:
        """Wait for the turn, free or handed over, and take it.

        Returns:
            Whether it was handed over.
        """
        while not self._lock.acquire(timeout=_LOOK_S):
            if self.take_over():
                return True
        self._owner = threading.get_ident()
        return False

    def leave(self) -> None:
        """Give the turn back."""
        self._owner = 0
        self._lock.release()

    def hand_over(self) -> None:
        """Keep the turn for the thread that calls `take_over`, or that waits in `enter`."""
        self._owner = 0
        self._handed = True

    def take_over(self) -> bool:
        """Take the turn if another thread has handed it over; return whether it has."""
        handed, self._handed = self._handed, False
        if handed:
            self._owner = threading.get_ident()
        return handed

    def mine(self) -> bool:
        """Return whether the calling thread has the turn."""
        return self._owner == threading.get_ident()

    def begin(self, call: str) -> int:
        """Count an operation, in the thread that has the turn; return its number."""
        self.latest = call
        self.running = True
        self.sequence += 1
        return self.sequence

    def end(self) -> None:
        """Note that the latest operation is over."""
        self.running = False

    def count_engine_operation(self) -> None:
        """Count an operation of the reducer, in the thread that has the turn."""
        self.engine_operations += 1

    def note(self, number: int) -> None:
        """Mix a call to Gloo into the history, in the thread that has the turn."""
        mixed = ((self.history ^ number) * _MULTIPLIER + 1) & _WORD
        self.history = mixed ^ mixed >> 32

    def add_pending(self, change: int) -> None:
        """Change `pending` by 1 or -1."""
        with self._counting:
            self.pending += change
