"""One change of what carries a group's sums, in the store, where all ranks hear of it.

    any rank     declares why                                              declared
    every rank   writes its state once it takes nothing more               state/<r>
    a rank that leaves the group before writes its state                   left/<r>
    and the first that has kept results, before that, these                bequest
    one rank     writes results that others lack, in pieces                results/<r>/<at>
    and then     that they are there                                       results

A rank that waits looks for the declaration; an idle one is woken by the store, as for notices.

Tested: `tests/host/test_fail_over.py`.
"""

import json
import time
from collections.abc import Callable, Collection
from typing import Any

from afflux.group.store.keys import GroupStore, waker_key
from afflux.group.store.notices import CHECK_INTERVAL_S
from afflux.group.store.watch import NEWS_KEY

__all__ = ["Epoch"]

_ONE_BY_ONE_S = 0.1

_PIECE = 1 << 20
"""Characters. A TCPStore ends a connection over which more than 8 MiB come at once."""


class Epoch:
    """The keys of one change. Its methods may be called by any thread.

    Args:
        keys: The group's.
        rank: Own rank.
        size: Ranks of the group.
        number: Of the change, from 1.
    """

    def __init__(self, keys: GroupStore, rank: int, size: int, number: int) -> None:
        self.number = number
        self._keys = keys
        self._rank = rank
        self._size = size
        self._prefix = f"fail-over/{number}"
        self._store = keys.notices.under(self._prefix)
        self._looked_at = 0.0
        self._asked_at = 0.0
        self._text: str | None = None

    def declare(self, text: str) -> str:
        """Let all ranks know why they must change; return the reason of the first rank that did.

        Raises:
            RuntimeError: The store is gone, or silent.
        """
        own = json.dumps({"rank": self._rank, "why": text})
        found = self._store.compare_set("declared", "", own).decode()
        if found == own:
            self._store.set(NEWS_KEY, "1")
            for rank in range(self._size):
                key = self._keys.notices.find(waker_key(rank))
                if key is not None and rank != self._rank:
                    self._keys.watch.wake(key.decode())
        self._text = _worded(found)
        return self._text

    def declared(self) -> str | None:
        """Return why ranks must change, if one has declared it. Asks at most each 0.2 s."""
        now = time.monotonic()
        if self._text is None and now - self._looked_at >= CHECK_INTERVAL_S:
            self._looked_at = now
            try:
                found = self._store.find("declared")
            except RuntimeError:
                # An operation that waits for this ends by its own timeout.
                return None
            self._text = None if found is None else _worded(found.decode())
        return self._text

    def look(self) -> None:
        """Let the next `declared` ask the store, however recently it was asked."""
        self._looked_at = 0.0

    def write_state(self, state: dict[str, Any]) -> None:
        """Write this rank's state."""
        self._store.set(f"state/{self._rank}", json.dumps(state))

    def bequeath(self, state: dict[str, Any], kept: Callable[[], dict[str, Any]] | None) -> None:
        """Write the state of a rank that leaves, which counts if it writes no other.

        Ranks leave after the same call, so the first one's results will do.

        Args:
            state: The rank's.
            kept: Returns the results that it has kept; None if it keeps none.
        """
        own = str(self._rank)
        if kept is not None and self._store.compare_set("bequest", "", own).decode() == own:
            self.give(kept())
        self._store.set(f"left/{self._rank}", json.dumps(state))

    def states(self, ranks: Collection[int], at_once: bool = False) -> dict[int, dict[str, Any]]:
        """Return the states of those of these ranks that have written one.

        Where not all have, they are asked for one by one only each 0.1 s, or `at_once`.
        """
        found: dict[int, dict[str, Any]] = {}
        now = time.monotonic()
        if not self._store.check([f"state/{rank}" for rank in ranks]):
            if now - self._asked_at < _ONE_BY_ONE_S and not at_once:
                return found
            self._asked_at = now
        for rank in ranks:
            text = self._store.find(f"state/{rank}") or self._store.find(f"left/{rank}")
            if text is not None:
                found[rank] = json.loads(text)
        return found

    def give(self, results: dict[str, Any]) -> None:
        """Write results that other ranks lack."""
        text = json.dumps(results)
        own = f"results/{self._rank}"
        for at in range(0, len(text), _PIECE):
            self._store.set(f"{own}/{at}", text[at : at + _PIECE])
        # Last, as all is there then.
        self._store.set("results", json.dumps([own, len(text)]))

    def given(self) -> dict[str, Any] | None:
        """Return the results that a rank has written, once they are there."""
        found = self._store.find("results")
        if found is None:
            return None
        whose, length = json.loads(found)
        pieces = [self._store.get(f"{whose}/{at}") for at in range(0, length, _PIECE)]
        return dict(json.loads(b"".join(pieces)))

    def watch(self, news: Callable[[], None]) -> None:
        """Call `news` once, in a thread that must not wait, when a change is declared.

        That ends with the group's own watch.
        """
        self._keys.watch.add(f"{self._keys.prefix}/{self._prefix}", news)


def _worded(text: str) -> str:
    declared = json.loads(text)
    return f"rank {declared['rank']} has noticed: {declared['why']}"
