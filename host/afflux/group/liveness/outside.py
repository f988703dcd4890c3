"""Ends of an operation from outside: other ranks have failed, refused it, or are gone."""

import time
from collections.abc import Callable
from typing import Any

from afflux.group.call.errors import GroupFailed
from afflux.group.store.notices import Notices, numbered
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import AffluxError, Interrupted

__all__ = ["Outside"]

_REFUSALS_INTERVAL_S = 0.5
"""How often a waiting rank asks whether another one has refused the call."""

_REASON_TIMEOUT_S = 1.0
"""The reason of another rank's failure may reach the store a moment after the failure is seen."""

_LOST_S = 0.2
"""The kernel closes all connections of a process at about the same time."""


class Outside:
    """Looks for what ends operations of one group at one rank. Used by whose turn it is.

    Args:
        notices: The group's.
        turn: The group's.
        lost: Returns the error if ranks are gone that an operation with this number waits for.
    """

    def __init__(
        self, notices: Notices, turn: Any, lost: Callable[[int], RanksEnded | None]
    ) -> None:
        self._notices = notices
        self._turn = turn
        self._find_lost = lost
        self._lost: RanksEnded | None = None
        self._heard = ""
        self._refusals = 0
        self._asked_at = 0.0

    def reason(self) -> str | None:
        """Return why the operation in progress must be given up; None if not."""
        first = self._notices.failure()
        # This rank's own observation says more than another one's of the same.
        if self._turn.running and (first is None or first.kind == RanksEnded.__name__):
            self._lost = self._find_lost(self._turn.sequence)
            if self._lost is not None:
                return str(self._lost)
        if first is not None:
            self._heard = f"rank {first.rank} failed: {first.error}"
            return self._heard
        now = time.monotonic()
        if self._turn.running and now - self._asked_at >= _REFUSALS_INTERVAL_S:
            self._asked_at = now
            refusal = self._notices.refusal(self._turn.sequence, self._refusals)
            if refusal is not None:
                self._heard = f"{self._named()}: {refusal}"
                return self._heard
        return None

    def refuse(self, error: BaseException, begun: bool) -> None:
        """Let who waits for this rank know that it refuses its call; see `Notices.refuse`."""
        self._refusals += 1
        self._notices.refuse(self._turn.sequence, begun, self._refusals, str(error))

    def failure(self, reason: Interrupted) -> AffluxError:
        """Return the error of an operation that has been given up: what `reason` has returned."""
        deadline = time.monotonic() + _REASON_TIMEOUT_S
        while True:
            lost, self._lost = self._lost, None
            if lost is not None:
                return self._name_lost(lost)
            if self._heard or time.monotonic() >= deadline:
                reason.operation = ""
                return GroupFailed(self._heard or f"{self._named()}: {reason}", elsewhere=True)
            self._notices.look()
            if self.reason() is None:
                time.sleep(0.02)

    def gone(self) -> tuple[int, ...]:
        """Return the ranks that have ended or left the group."""
        lost = self._find_lost(self._turn.sequence + 1)
        return lost.ranks if lost is not None else ()

    def loss_behind(self) -> AffluxError | None:
        """Return the error that names the ranks whose end has made an operation fail, if any."""
        deadline = time.monotonic() + _LOST_S
        while True:
            lost = self._find_lost(self._turn.sequence)
            if lost is not None:
                return self._name_lost(lost)
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)

    def _name_lost(self, lost: RanksEnded) -> AffluxError:
        lost.args = (f"{self._named()}: {lost}",)
        return lost

    def _named(self) -> str:
        return numbered(self._turn.latest, self._turn.sequence)
