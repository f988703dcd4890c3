"""Finds out that ranks wait for each other in vain: one in Gloo, say, another in shards.

Calls that go to the same engine are compared there. Ranks that are in different ones would wait
until their timeouts. So a rank that has waited for a while writes into the store in which call it
waits, and reads what the next rank has written; the last rank reads the first one's. If calls
differ, there are two neighbours whose calls do.

An operation may have several waits, one after the other, in different engines. A rank's entry stays
there, so each says which one of the operation it is, and only the same are compared.
"""

import json
import logging
import time
from typing import Any

from afflux.group.reducers.reducer import Interruption
from afflux_drivers.errors import Disagreement

__all__ = ["DeadlockDetector"]

_log = logging.getLogger("afflux")

_PATIENCE_S = 1.0
"""So long a wait is looked into, and again after as long."""


class DeadlockDetector:
    """The waiting calls of one group, in the store. Used by the thread that has the group's turn.

    Args:
        store: For this alone.
        rank: Own rank.
        ranks: How many there are.
    """

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._store = store
        self._rank = rank
        self._next = (rank + 1) % ranks
        self._latest: tuple[int, str, str] | None = None
        self._step = 0

    def watching(
        self, number: int, engine: str, call: str, interrupted: Interruption
    ) -> Interruption:
        """Return what also looks whether the next rank waits in the same call.

        Args:
            number: Of the group's operation, the same at all ranks.
            engine: The engine for which the call waits, in words: ranks that wait for the same one
                compare their calls there.
            call: The call, in words.
            interrupted: The function to call first.

        Raises:
            Disagreement: When called: the next rank waits in another call.
        """
        step = self._step_of(number, engine, call)
        due, written = time.monotonic() + _PATIENCE_S, False

        def look() -> str | None:
            nonlocal due, written
            reason = interrupted()
            now = time.monotonic()
            if reason is not None or now < due:
                return reason
            due = now + _PATIENCE_S
            if not written:
                written = True
                self._write([number, step, engine, call])
            other = self._read()
            if other is None or other[:2] != [number, step] or other[2] == engine:
                return None
            raise Disagreement(
                f"the ranks disagree: rank {self._rank} waits for {engine} in {call}, but rank "
                f"{self._next} for {other[2]} in {other[3]}",
                number=number,
                description=call,
                fingerprint=0,
                fingerprints=None,
            )

        return look

    def _step_of(self, number: int, engine: str, call: str) -> int:
        """Return which of the operation's waits this is; one that is taken up again is the same."""
        wait = (number, engine, call)
        if self._latest is None or self._latest[0] != number:
            self._step = 0
        elif self._latest != wait:
            self._step += 1
        self._latest = wait
        return self._step

    def _write(self, what: list[Any]) -> None:
        try:
            self._store.set(str(self._rank), json.dumps(what))
        except RuntimeError:
            _log.debug("the store rejected a waiting call", exc_info=True)

    def _read(self) -> Any:
        try:
            key = str(self._next)
            if not self._store.check([key]):
                return None
            return json.loads(self._store.get(key))
        except (RuntimeError, ValueError):
            return None
