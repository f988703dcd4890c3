"""A declaration by one rank in the store, of which all ranks hear once.

A rank that waits looks for it; an idle one is woken by the store, as for notices.

Tested: `tests/host/test_fail_over.py`, `tests/host/test_fail_back.py`.
"""

import json
import time
from collections.abc import Callable
from typing import NamedTuple

from afflux.group.store.keys import GroupStore, waker_key
from afflux.group.store.notices import CHECK_INTERVAL_S
from afflux.group.store.watch import NEWS_KEY

__all__ = ["Declaration", "Declared"]


class Declared(NamedTuple):
    """A declaration.

    Attributes:
        rank: The rank.
        what: Its words.
    """

    rank: int
    what: str

    def __str__(self) -> str:
        """Return both, for messages."""
        return f"rank {self.rank} has noticed: {self.what}"


class Declaration:
    """The keys of one declaration. Its methods may be called by any thread.

    Args:
        keys: The group's.
        rank: Own rank.
        size: Ranks of the group.
        prefix: Of its keys, among the group's.
    """

    def __init__(self, keys: GroupStore, rank: int, size: int, prefix: str) -> None:
        self.prefix = prefix
        self._keys = keys
        self._rank = rank
        self._size = size
        self._store = keys.notices.under(prefix)
        self._looked_at = 0.0
        self._found: Declared | None = None

    def declare(self, text: str) -> Declared:
        """Let all ranks know; return what the first rank has declared that did.

        Raises:
            RuntimeError: The store is gone, or silent.
        """
        own = json.dumps([self._rank, text])
        found = self._store.compare_set("declared", "", own).decode()
        if found == own:
            self._store.set(NEWS_KEY, "1")
            for rank in range(self._size):
                key = self._keys.notices.find(waker_key(rank))
                if key is not None and rank != self._rank:
                    self._keys.watch.wake(key.decode())
        self._found = Declared(*json.loads(found))
        return self._found

    def declared(self) -> Declared | None:
        """Return what a rank has declared; None if none has. Asks at most each 0.2 s."""
        now = time.monotonic()
        if self._found is None and now - self._looked_at >= CHECK_INTERVAL_S:
            self._looked_at = now
            try:
                found = self._store.find("declared")
            except RuntimeError:
                # An operation that waits for this ends by its own timeout.
                return None
            self._found = None if found is None else Declared(*json.loads(found))
        return self._found

    def look(self) -> None:
        """Let the next `declared` ask the store, however recently it was asked."""
        self._looked_at = 0.0

    def watch(self, news: Callable[[], None]) -> None:
        """Call `news` once, in a thread that must not wait, when a rank has declared it.

        That ends with the group's own watch.
        """
        self._keys.watch.add(f"{self._keys.prefix}/{self.prefix}", news)
