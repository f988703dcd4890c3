"""The group, as a reducer that goes on without its aggregators sees it.

Tested: `tests/host/test_fail_over.py`.
"""

import time
from collections.abc import Callable, Collection, Sequence

from afflux.group.reducers.reducer import Interruption
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import Interrupted, RanksMissing

__all__ = ["Attending"]

_LAST_PAUSE_S = 0.02


class Attending:
    """The interruptions that a waiting rank heeds; none before the group has begun.

    Args:
        rank: Own rank.
        timeout_s: The group's timeout, for what no call waits for.

    Attributes:
        timeout_s: As given.
        interrupted: Returns why the operation in progress must be given up; None if not.
        gone: Returns the ranks that have ended or left the group.
        news: Called when a change is due while the group is idle.
    """

    def __init__(self, rank: int, timeout_s: float) -> None:
        self._rank = rank
        self.timeout_s = timeout_s
        self.interrupted: Interruption = lambda: None
        self.gone: Callable[[], Sequence[int]] = tuple
        self.news: Callable[[], None] = lambda: None

    def wait(self, come: Callable[[], bool], deadline: float, interrupted: Interruption) -> None:
        """Wait until `come` returns True.

        Raises:
            Interrupted: `interrupted` has given a reason.
            RanksMissing: The deadline has come; the caller knows for whom it has waited.
        """
        pause_s = 0.001
        while not come():
            self._heed(interrupted)
            if time.monotonic() >= deadline:
                raise RanksMissing("", ())
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LAST_PAUSE_S)

    def look(self, interrupted: Interruption) -> None:
        """Raise an error if it is in vain to wait for all ranks.

        Raises:
            Interrupted: `interrupted` has given a reason.
            RanksEnded: Ranks have ended or left the group.
        """
        self._heed(interrupted)
        self.lose(self.gone())

    def lose(self, ranks: Collection[int]) -> None:
        """Raise an error if there are such ranks, which are gone.

        Raises:
            RanksEnded: There are.
        """
        if ranks:
            names = ", ".join(map(str, sorted(ranks)))
            raise RanksEnded(f"rank(s) {names} ended or left the group", tuple(sorted(ranks)))

    def _heed(self, interrupted: Interruption) -> None:
        reason = interrupted()
        if reason is not None:
            raise Interrupted(f"rank {self._rank}: {reason}")
