"""Which blocks of a call are results, at a rank of a host that sends one stream.

The leader's worker takes each piece of a tensor as a call of its own, of which it keeps a journal.
The other ranks of the host have a piece when they have taken it out of the memory that all share.

Tested: `tests/host/test_fail_over_by_host.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers._native import Journal
from afflux_hdl.contract import wire

__all__ = ["HostJournal"]


def _blocks(part: NDArray[Any]) -> int:
    return -(-part.nbytes // wire.BLOCK_BYTES)


class HostJournal:
    """A rank's results, as `Results` of `afflux.group.reducers.recovery` has them.

    Args:
        worker: The journal of the host's worker, at the leader; None at the others.

    Attributes:
        over: Calls that have come to their good end here.
        running: Whether one is running.
        begun: Whether the leader sums the piece behind those that are done; until then there may
            still be another one in its place.
        parts: Its pieces; all but the last one are whole blocks.
        done: So many of them are results here; the host's others may take them out.
        taken_before: How many blocks of the call that was over last count as results.
    """

    def __init__(self, worker: Journal | None) -> None:
        self._worker = worker
        self.over = 0
        self.running = False
        self.begun = False
        self.parts: Sequence[NDArray[Any]] = ()
        self.done = 0
        self.taken_before = 0
        self._elements: NDArray[Any] = np.empty(0, np.uint8)
        self._taken = np.empty(0, np.uint8)
        self._last = 0

    def begin(self, elements: NDArray[Any], parts: Sequence[NDArray[Any]]) -> None:
        """Begin a call whose result goes to where these elements are."""
        self.running, self.begun, self.done = True, False, 0
        self._elements, self.parts = elements, parts
        self._taken = np.zeros(sum(map(_blocks, parts)), np.uint8)

    @property
    def here(self) -> NDArray[np.uint8]:
        """A byte for each block of the piece behind those that are done: 1 if it is a result."""
        place = self._place(self.done)
        if self._worker is not None and self._worker.running:
            return np.frombuffer(self._worker.taken, np.uint8)
        return self._taken[place]

    def take(self, marks: NDArray[np.uint8]) -> None:
        """Note which blocks of that piece are results."""
        self._taken[self._place(self.done)] = marks != 0

    def take_piece(self) -> None:
        """Note that all of that piece is result."""
        self._taken[self._place(self.done)] = 1
        self.done += 1
        self.begun = False

    def end(self) -> None:
        """Note that the call is over; its tensor may change from now on."""
        # A rank that has not ended it lacks a part of the last piece.
        self._last = self._place(len(self.parts) - 1).start
        self.taken_before = self._last
        if self._worker is not None:
            self.taken_before += self._worker.taken_before
        self.over += 1
        self.running = False
        self._elements, self.parts = np.empty(0, np.uint8), ()

    @property
    def result(self) -> NDArray[np.uint8]:
        """The bytes of the running call's result, as long as its tensor lives."""
        return self._elements.view(np.uint8)

    @property
    def taken(self) -> bytes:
        """A byte for each block of it: 1 if it is a result."""
        if self.running and self.done < len(self.parts):
            self.take(self.here)
        return self._taken.tobytes()

    @property
    def kept(self) -> list[int]:
        """Blocks of the call that was over last which another host may lack; the leader's."""
        return [] if self._worker is None else [self._last + each for each in self._worker.kept]

    @property
    def contents(self) -> bytes:
        """Their bytes, one after the other, in a block's room each."""
        return b"" if self._worker is None else self._worker.contents

    def _place(self, n: int) -> slice:
        before = sum(map(_blocks, self.parts[:n]))
        return slice(before, before + _blocks(self.parts[n]))
