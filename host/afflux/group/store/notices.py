"""Entries of the ranks of a group in the store: failures, and that they are done.

The store is slow and shared, so nothing is written while all goes well. When an operation fails,
every rank, including idle ones, writes down what it was doing, so that every rank's error can show
what each rank had asked for. An idle rank learns of news without polling: it sleeps until the store
wakes it.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass

from afflux.group.store.bounded import StoreSilent
from afflux.group.store.keys import GroupStore, waker_key
from afflux.group.store.watch import NEWS_KEY

__all__ = ["CallRecord", "Notices", "Watcher", "behind", "numbered"]

_log = logging.getLogger("afflux")

_REFUSED = "refused"

CHECK_INTERVAL_S = 0.2
"""A store is asked for news at most this often."""


@dataclass(frozen=True)
class CallRecord:
    """One rank's view at the moment when it learnt of a failure.

    Attributes:
        rank: The one that writes.
        sequence: Number of its latest operation in this group, from 1; 0 before the first.
        call: Its call, such as "all_reduce sum float32 (3, 4)".
        running: Whether that was still in progress.
        error: Message of its own error; empty if it only learnt of another's.
        kind: Class name of that error.
        ended: Ranks whose processes have ended, or have left the group, by that error.
    """

    rank: int
    sequence: int
    call: str
    running: bool
    error: str = ""
    kind: str = ""
    ended: Sequence[int] = ()

    def __str__(self) -> str:
        if self.sequence == 0:
            return f"rank {self.rank}: no operation yet"
        if self.running:
            return f"rank {self.rank}: {numbered(self.call, self.sequence)}"
        return f"rank {self.rank}: nothing since {numbered(self.call, self.sequence)}"


def numbered(call: str, sequence: int) -> str:
    """Name an operation of a group for messages."""
    return f"{call} (operation {sequence})"


def behind(records: dict[int, CallRecord], size: int) -> list[int]:
    """Return the ranks for which others waited in an operation; none if nobody was in one."""
    latest = max((each.sequence for each in records.values() if each.running), default=0)
    if latest == 0:
        return []
    there = {rank for rank, each in records.items() if each.running and each.sequence == latest}
    return [rank for rank in range(size) if rank not in there]


class Notices:
    """The group's notices in the store. A store that fails counts as one without news.

    Any thread may use it, and a signal handler in the middle of another call: each call is a few
    short ones of the store, in an order that lets others come between.

    Args:
        keys: The group's.
        rank: Own rank in the group.
        size: Ranks of the group.
    """

    def __init__(self, keys: GroupStore, rank: int, size: int) -> None:
        self._store = keys.notices
        self._watch = keys.watch
        self._rank = rank
        self._size = size
        self._checked_at = 0.0
        self._noticed = False
        self._wrote = False
        self._gone = False

    @property
    def silence(self) -> str:
        """That the store does not answer, in words; empty if it does."""
        return self._store.silence

    def look(self) -> None:
        """Let the next `notice` ask the store, however recently it was asked."""
        self._checked_at = 0.0

    def notice(self) -> bool:
        """Return whether some rank has failed or closes. Asks the store at most each 0.2 s."""
        now = time.monotonic()
        if not self._noticed and now - self._checked_at >= CHECK_INTERVAL_S:
            self._checked_at = now
            self._noticed = self._has(NEWS_KEY)
        return self._noticed

    def failure(self) -> CallRecord | None:
        """Return the record of the rank that failed first, if one did."""
        return self._read("failure") if self.notice() else None

    def closing(self) -> int | None:
        """Return the number of the group's last operation if a rank has begun to close it."""
        if not self.notice():
            return None
        text = self._get("closing")
        return int(text) if text is not None else None

    def departed(self) -> list[int]:
        """Return the ranks that have destroyed the group, or have confirmed its end."""
        if not self._has("closing"):
            return []
        closer = self.closer()
        return [rank for rank in range(self._size) if rank == closer or self._has(f"closed/{rank}")]

    def closer(self) -> int:
        """Return the rank that has begun to close the group: 0, or one that holds a part of it."""
        return int(self._get("closer") or 0)

    def declare(self, record: CallRecord) -> CallRecord:
        """Publish this rank's failure; return the first failure of the group, own or another's."""
        self.publish(record)
        first = record
        try:
            text = self._store.compare_set("failure", "", json.dumps(asdict(record)))
            first = CallRecord(**json.loads(text))
        except (RuntimeError, ValueError):
            _log.debug("the failure could not be published", exc_info=True)
        self._announce({*record.ended, *first.ended})
        return first

    def publish(self, record: CallRecord) -> None:
        """Publish what this rank was doing. Only the first record counts."""
        if not self._wrote:
            self._wrote = True
            self._set(f"record/{record.rank}", json.dumps(asdict(record)))

    def records(self, timeout_s: float, dead: Collection[int] = ()) -> dict[int, CallRecord]:
        """Return the records that come within `timeout_s`, by rank.

        Ranks that are `dead`, here or by a record, or have left the group, write none: nobody waits
        for them.
        """
        found: dict[int, CallRecord] = {}
        awaited = set(range(self._size)) - {*dead, *self.departed()}
        deadline = time.monotonic() + timeout_s
        while True:
            for rank in range(self._size):
                if rank not in found:
                    record = self._read(f"record/{rank}")
                    if record is not None:
                        found[rank] = record
                        awaited.difference_update(record.ended)
            # A store that is gone, with the rank that held it perhaps, or silent brings no more.
            if (
                awaited <= found.keys()
                or time.monotonic() >= deadline
                or self._gone
                or self.silence
            ):
                return found
            time.sleep(0.02)

    def refuse(self, sequence: int, begun: bool, refusals: int, error: str) -> None:
        """Publish that this rank does not take part in a call, as its arguments are wrong here.

        Args:
            sequence: Number of its latest operation.
            begun: Whether that is the call. Else it takes part in that one, which may go on.
            refusals: How many calls it has refused, this one included.
            error: Why.
        """
        first = sequence if begun else sequence + 1
        record = {"sequence": sequence, "first": first, "refusals": refusals, "error": error}
        self._set(f"{_REFUSED}/{self._rank}", json.dumps(record))
        self._set(_REFUSED, "1")

    def refusal(self, sequence: int, refusals: int) -> str | None:
        """Return why another rank does not come to an operation; None if none has refused it.

        Where all ranks have refused the same call, none waits for it, and the record means nothing.

        Args:
            sequence: Number of the operation in which this rank waits.
            refusals: How many calls this rank has refused.
        """
        if not self._has(_REFUSED):
            return None
        for rank in range(self._size):
            text = self._get(f"{_REFUSED}/{rank}") if rank != self._rank else None
            record = json.loads(text) if text else {"sequence": -1, "refusals": 0}
            # It has not begun the operation, or Gloo there has refused it.
            if (
                record["refusals"] > refusals
                and record["first"] <= sequence <= record["sequence"] + 1
            ):
                return f"rank {rank} does not take part: {record['error']}"
        return None

    def begin_close(self, sequence: int) -> None:
        """Ask the others to confirm that they need nothing after `sequence`, unless one has asked.

        Rank 0 does it, and every other rank that holds what the others need.
        """
        if self._has("closing"):
            return
        if self._rank:
            self._set("closer", str(self._rank))
        self._set("closing", str(sequence))
        self._announce()

    def confirm_close(self) -> None:
        """Confirm that this rank needs no more results of the aggregators."""
        self._set(f"closed/{self._rank}", "1")

    def unconfirmed(
        self, timeout_s: float, gone: Callable[[], Collection[int]] = tuple
    ) -> list[int]:
        """Return the ranks that have not confirmed within `timeout_s`, and are not gone."""
        deadline = time.monotonic() + timeout_s
        missing = [rank for rank in range(self._size) if rank != self._rank]
        while True:
            try:
                missing = [rank for rank in missing if not self._store.check([f"closed/{rank}"])]
            except StoreSilent:
                # That says nothing of the ranks, which may still need this one.
                _log.debug("the store does not say who has confirmed", exc_info=True)
            except RuntimeError:
                # The store's server ends with a rank that has waited for all, or has failed.
                return []
            if missing:
                away = gone()
                missing = [rank for rank in missing if rank not in away]
            if not missing or time.monotonic() >= deadline:
                return missing
            time.sleep(0.01)

    def _announce(self, ended: Collection[int] = ()) -> None:
        self._set(NEWS_KEY, "1")
        if not self._watch.wake_key:
            return
        for rank in range(self._size):
            key = self._get(waker_key(rank))
            if key is not None:
                self._wake(key, rank not in ended)

    def _wake(self, key: str, lives: bool = True) -> None:
        try:
            self._watch.wake(key, lives)
        except RuntimeError:
            _log.debug("the store rejected %s", key, exc_info=True)

    def _read(self, key: str) -> CallRecord | None:
        text = self._get(key)
        try:
            return CallRecord(**json.loads(text)) if text else None
        except (TypeError, ValueError):
            return None

    def _has(self, key: str) -> bool:
        try:
            return self._store.check([key])
        except RuntimeError:
            return False

    def _get(self, key: str) -> str | None:
        try:
            found = self._store.find(key)
        except StoreSilent:
            return None
        except RuntimeError:
            self._gone = True
            return None
        return None if found is None else found.decode()

    def _set(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value)
        except RuntimeError:
            _log.debug("the store rejected %s", key, exc_info=True)


class Watcher:
    """Calls `news` once, when another rank has failed or closes the group.

    It is called in a thread that all groups of this process share, hence must not wait.

    Args:
        keys: The group's.
        news: Called in the shared thread.
    """

    def __init__(self, keys: GroupStore, news: Callable[[], None]) -> None:
        self._keys = keys
        keys.watch.add(keys.prefix, news)

    def stop(self) -> None:
        """Call `news` no more."""
        self._keys.watch.remove(self._keys.prefix)
