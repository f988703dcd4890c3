"""A group's way back: ranks that sum without their aggregators use them again, from one call on.

    rank 0   declares that aggregators answer, and which                declared
    all      say how many calls they have begun, and begin no more      begun/<r>
    all      carry out as many calls as any rank has begun
    all      join the aggregators together                              as in `Exchange`

A call that a rank has begun needs the others, so all carry it out where it has begun; since each
rank says how far it is before it waits for the others, nobody begins a call beyond that. Until all
have joined, what has taken the aggregators' place stays: if one cannot join, all go on with that,
and rank 0 looks for aggregators again. `tests/models/fail_back_model.py` has every order of events.

Tested: `tests/host/test_fail_back.py`, `tests/sim/test_fail_back_model.py`.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from afflux.group.reducers.attending import Attending
from afflux.group.reducers.reducer import Interruption, Reducer
from afflux.group.store.declaration import Declaration
from afflux.group.store.exchange import Exchange, StepFailed
from afflux.group.store.keys import GroupStore
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import RanksMissing

__all__ = ["FailBack", "Join", "Lookout"]

_log = logging.getLogger("afflux")

Join = Callable[[Exchange, str], Reducer[Any]]
"""Makes a reducer over the aggregators that rank 0 has declared in such words; collective."""


class Lookout(Protocol):
    """Looks for aggregators that answer, at rank 0."""

    def look(self, attempt: int, came: Callable[[str], None]) -> None:
        """Call `came` once, in another thread, with what `Join` needs when aggregators answer.

        Args:
            attempt: The number of the attempt to use them, from 1.
            came: If it raises a `RuntimeError`, the lookout goes on.
        """

    def close(self) -> None:
        """Look no more."""


class FailBack:
    """One rank's part. Used by the thread whose turn it is.

    Args:
        keys: The group's.
        rank: Own rank.
        size: Ranks of the group.
        change: The number of the change to what goes on without the aggregators.
        join: Makes the reducer.
        lookout: Rank 0's; None elsewhere, and where nobody looks.

    Attributes:
        count: How often the group has come back.
    """

    def __init__(
        self,
        keys: GroupStore,
        rank: int,
        size: int,
        change: int,
        join: Join,
        lookout: Lookout | None,
    ) -> None:
        self.count = 0
        self._keys = keys
        self._rank = rank
        self._size = size
        self._change = change
        self._join = join
        self._lookout = lookout
        self._group: Attending | None = None
        self._begun = 0
        self._attempt = 0
        self._told = False
        self._target: int | None = None

    def begin(self, group: Attending) -> None:
        """Begin to heed rank 0: from now on the group goes on without aggregators."""
        self._group = group
        self._begun = 0
        self._try_next(group)

    def call_begins(self) -> None:
        """Count a call that all ranks carry out without aggregators."""
        self._begun += 1

    def hear(self, look: bool = False) -> bool:
        """Return whether rank 0 has found aggregators; if so, let all know how far this rank is.

        Args:
            look: Whether the store is asked, however recently it was.
        """
        if self._group is None:
            return False
        if look:
            self._declaration.look()
        if self._declaration.declared() is not None and not self._told:
            try:
                self._store.set(f"begun/{self._rank}", str(self._begun))
                self._told = True
            except RuntimeError:
                _log.debug("the calls that have begun were not written", exc_info=True)
        return self._told

    def attend(self, interrupted: Interruption, wait: bool) -> Reducer[Any] | None:
        """Return the reducer over aggregators if all ranks use it from here on. Between two calls.

        Args:
            interrupted: Returns why this must be given up; None if not.
            wait: Whether to wait until the ranks have said how far they are: a call is to begin, or
                the group is idle.

        Raises:
            AffluxError: Others may use it now, and this rank does not; or what `interrupted` says.
        """
        group = self._group
        if group is None or not self.hear():
            return None
        try:
            target = self._find_target(group, interrupted, wait)
            if target is None or self._begun < target:
                return None
            made = self._make(group, interrupted)
        except RanksMissing as late:
            # The others hear of it where they wait. Without all there is no way back.
            self._exchange(group).report(late, stays=False)
        except StepFailed as failure:
            _log.info("rank %d: stays without its aggregators: %s", self._rank, failure)
        else:
            self._group = None
            self.count += 1
            return made
        self._try_next(group)
        return None

    def close(self) -> None:
        """Look for aggregators no more."""
        self._group = None
        if self._lookout is not None:
            self._lookout.close()

    def _try_next(self, group: Attending) -> None:
        self._attempt += 1
        prefix = f"fail-back/{self._change}/{self._attempt}"
        self._store = self._keys.notices.under(prefix)
        self._declaration = Declaration(self._keys, self._rank, self._size, prefix)
        self._told, self._target = False, None
        self._declaration.watch(group.news)
        # Rank 0 may have declared it before, while this rank was still in the attempt before.
        group.news()
        if self._lookout is not None:
            declaration = self._declaration

            def came(text: str) -> None:
                declaration.declare(text)
                group.news()

            self._lookout.look(self._attempt, came)

    def _find_target(self, group: Attending, interrupted: Interruption, wait: bool) -> int | None:
        """Return how many calls come before the way back; None if it is not known yet.

        Raises:
            StepFailed: A rank has given up.
            RanksMissing: Ranks have not said how far they are, or are gone.
        """
        if self._target is not None:
            return self._target
        keys = [f"begun/{rank}" for rank in range(self._size)]
        exchange = self._exchange(group)

        def come() -> bool:
            with contextlib.suppress(RuntimeError):
                if self._store.check(keys):
                    self._target = max(int(self._store.get(key)) for key in keys)
            if self._target is None and (failure := exchange.failure()):
                raise StepFailed(failure)
            return self._target is not None

        if wait:
            deadline = time.monotonic() + group.timeout_s

            def look() -> str | None:
                group.lose(group.gone())
                return interrupted()

            group.wait(come, deadline, look)
        else:
            come()
        return self._target

    def _make(self, group: Attending, interrupted: Interruption) -> Reducer[Any]:
        declared = self._declaration.declared()
        assert declared is not None
        began_s = time.monotonic()
        exchange = self._exchange(group, lambda: group.look(interrupted))
        try:
            made = self._join(exchange, declared.what)
        except (StepFailed, RanksEnded):
            raise
        except BaseException as error:
            exchange.report(error, stays=False)
            raise
        _log.info(
            "rank %d: back at its aggregators from the call after %d on, in %.3f s", self._rank,
            self._begun, time.monotonic() - began_s,
        )  # fmt: skip
        return made

    def _exchange(self, group: Attending, look: Callable[[], None] = lambda: None) -> Exchange:
        store = self._store.under("join")
        return Exchange(store, self._rank, self._size, group.timeout_s, look)
