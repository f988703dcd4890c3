"""How a group ends at one rank: by the first error, which all ranks learn, or in peace."""

import contextlib
import copy
import logging
from collections.abc import Callable
from typing import Any

from afflux.group.call.errors import GroupClosed, GroupFailed
from afflux.group.store.explanation import explain
from afflux.group.store.notices import CallRecord, Notices, numbered
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import AffluxError

__all__ = ["Shutdown"]

_log = logging.getLogger("afflux")

_RECORDS_TIMEOUT_S = 2.0
"""A rank that publishes nothing for so long is dead or stuck."""


class Shutdown:
    """The end of one group at one rank. Used by the thread whose turn it is.

    Args:
        notices: The group's.
        turn: The group's.
        give_up: Called with the reason when the group has failed here, after it has been published.
        has_failed: Called with the error that ends the group, and with what the ranks were doing.
        rank: Own rank.
        size: Ranks of the group.

    Attributes:
        failure: The error that has ended the group; None before.
    """

    def __init__(
        self,
        notices: Notices,
        turn: Any,
        give_up: Callable[[str], None],
        has_failed: Callable[[AffluxError, dict[int, CallRecord]], None],
        rank: int,
        size: int,
    ) -> None:
        self._notices = notices
        self._turn = turn
        self._give_up = give_up
        self._has_failed = has_failed
        self._rank = rank
        self._size = size
        self.failure: AffluxError | None = None

    def named(self) -> str:
        """Name the latest operation for messages."""
        return numbered(self._turn.latest, self._turn.sequence)

    def again(self) -> AffluxError:
        """Return the error of a call that comes after the end."""
        if isinstance(self.failure, GroupClosed):
            return GroupClosed(str(self.failure))
        return GroupFailed(f"the group failed before: {self.failure}")

    def fail(self, error: AffluxError, ask: bool = True) -> AffluxError:
        """Fail the group with `error`; return it with what all ranks know, if it may ask them."""
        turn = self._turn
        dead = error.ranks if isinstance(error, RanksEnded) else ()
        record = CallRecord(
            self._rank,
            turn.sequence,
            turn.latest,
            turn.running,
            str(error),
            type(error).__name__,
            dead,
        )
        records: dict[int, CallRecord] = {}
        with contextlib.suppress(Exception):
            first = self._notices.declare(record)
            self._give_up(f"rank {self._rank} failed: {error}")
            if ask and not isinstance(error, GroupClosed):
                records = self._notices.records(_RECORDS_TIMEOUT_S, dead)
                departed, silence = self._notices.departed(), self._notices.silence
                error = explain(error, first, records, self._size, silence, departed)
        self._set(error)
        self._has_failed(error, records)
        _log.info("rank %d: %s", self._rank, error)
        return error

    def hear(self, bequeath: Callable[[], None]) -> bool:
        """Learn of other ranks' failures while idle, and let who holds the job close.

        Args:
            bequeath: Leaves to others what they may lack, before this rank says that it is done.

        Returns:
            Whether there is no more to hear: if not, the news are still to be told, or this rank
            has yet to come to the group's last operation.
        """
        self._notices.look()
        if self.failure is not None:
            return True
        first = self._notices.failure()
        if first is not None:
            self.fail(GroupFailed(f"rank {first.rank} failed: {first.error}", elsewhere=True))
            return True
        last = self._notices.closing()
        if last is None or last > self._turn.sequence:
            return False
        closer = self._notices.closer()
        if closer != self._rank:
            bequeath()
            self._notices.confirm_close()
            self._set(GroupClosed(f"rank {closer} has destroyed the group"))
        return True

    def closed_by_rank_0(self) -> bool:
        """Return whether rank 0 has closed the group, seen from another rank."""
        self._notices.look()
        return self._rank != 0 and self._notices.closing() is not None

    def confirm(
        self, timeout_s: float | None, holds: bool, gone: Callable[[], tuple[int, ...]]
    ) -> None:
        """Confirm the end to the others, and wait for theirs if they need this rank.

        Args:
            timeout_s: How long to wait; None if there is no job.
            holds: Whether what the others need ends with this rank's part.
            gone: Returns the ranks that have ended or left the group.
        """
        if self._rank == 0 or holds:
            self._notices.begin_close(self._turn.sequence)
            if timeout_s is None:
                return
            # Rank 0 need not be the only one that waits.
            self._notices.confirm_close()
            late = self._notices.unconfirmed(timeout_s, gone)
            if late:
                _log.info("ranks %s did not confirm that they are done; closing anyway", late)
        elif timeout_s is not None:
            self._notices.confirm_close()

    def _set(self, error: AffluxError) -> None:
        # Not the one that callers see: its frames have the group, which would never be freed.
        self.failure = copy.copy(error)
        self._turn.closed = True
