"""One change of what carries a group's sums, in the store, where all ranks hear of it.

    any rank     declares why                          as in `afflux.group.store.declaration`
    every rank   writes its state once it takes nothing more               state/<r>
    a rank that leaves the group before writes its state                   left/<r>
    and the first that has kept results, before that, these                bequest
    one rank     writes results that others lack, in pieces                results/<r>/<at>
    and then     that they are there                                       results

Tested: `tests/host/test_fail_over.py`.
"""

import json
import time
from collections.abc import Callable, Collection
from typing import Any

from afflux.group.store.declaration import Declaration
from afflux.group.store.keys import GroupStore

__all__ = ["Epoch"]

_ONE_BY_ONE_S = 0.1

_PIECE = 1 << 20
"""Characters. A TCPStore ends a connection over which more than 8 MiB come at once."""


class Epoch(Declaration):
    """The keys of one change. Its methods may be called by any thread.

    Args:
        keys: The group's.
        rank: Own rank.
        size: Ranks of the group.
        number: Of the change, from 1.
    """

    def __init__(self, keys: GroupStore, rank: int, size: int, number: int) -> None:
        super().__init__(keys, rank, size, f"fail-over/{number}")
        self._asked_at = 0.0

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
