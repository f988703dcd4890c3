"""What the ranks of a group publish in the store: failures, and that they are done.

The store is slow and shared, so nothing is written while all goes well. When an operation fails,
every rank, including idle ones, writes down what it was doing, so that every rank's error can show
what each rank had asked for. An idle rank learns of news without polling: it sleeps until the store
wakes it.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch._C._distributed_c10d import Store

from afflux.group.torch_store import blocks_without_polling

__all__ = ["CallRecord", "Notices", "Watcher", "numbered", "wake_key"]

_log = logging.getLogger("afflux")

CHECK_INTERVAL_S = 0.2
"""A store is asked for news at most this often."""

_POLL_S = 0.5
"""For stores that can only be polled, such as a FileStore."""

_ONE_WAIT = timedelta(days=20)
"""The store counts milliseconds in 31 bits."""

_JOIN_S = 2.0


@dataclass(frozen=True)
class CallRecord:
    """One rank's view at the moment when it learnt of a failure.

    Attributes:
        rank: The one that writes.
        sequence: Number of its latest operation in this group, from 1; 0 before the first.
        call: What it had asked for, such as "all_reduce sum float32 (3, 4)".
        running: Whether that was still in progress.
        error: Message of its own error; empty if it only learnt of another's.
        kind: Class name of that error.
    """

    rank: int
    sequence: int
    call: str
    running: bool
    error: str = ""
    kind: str = ""

    def __str__(self) -> str:
        if self.sequence == 0:
            return f"rank {self.rank}: no operation yet"
        if self.running:
            return f"rank {self.rank}: {numbered(self.call, self.sequence)}"
        return f"rank {self.rank}: nothing since {numbered(self.call, self.sequence)}"


def numbered(call: str, sequence: int) -> str:
    """Name an operation of a group for messages."""
    return f"{call} (operation {sequence})"


def wake_key(rank: int) -> str:
    """Return the key that appears in the store when there is news for an idle rank."""
    return f"wake/{rank}"


class Notices:
    """The group's notices in the store. A store that fails counts as one without news.

    Args:
        store: A store of the group. One thread at a time uses it, and this object.
        rank: Own rank in the group.
        size: Ranks of the group.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._checked_at = 0.0
        self._noticed = False
        self._wrote = False

    def look(self) -> None:
        """Let the next `notice` ask the store, however recently it was asked."""
        self._checked_at = 0.0

    def notice(self) -> bool:
        """Return whether some rank has failed or closes. Asks the store at most each 0.2 s."""
        now = time.monotonic()
        if not self._noticed and now - self._checked_at >= CHECK_INTERVAL_S:
            self._checked_at = now
            self._noticed = self._has("notice")
        return self._noticed

    def failure(self) -> CallRecord | None:
        """Return the record of the rank that failed first, if one did."""
        return self._read("failure") if self.notice() else None

    def closing(self) -> int | None:
        """Return the number of the group's last operation if rank 0 has begun to close it."""
        if not self.notice():
            return None
        text = self._get("closing")
        return int(text) if text is not None else None

    def declare(self, record: CallRecord) -> CallRecord:
        """Publish this rank's failure; return the first failure of the group, own or another's."""
        self.publish(record)
        first = record
        try:
            text = self._store.compare_set("failure", "", json.dumps(asdict(record)))
            first = CallRecord(**json.loads(text))
        except (RuntimeError, ValueError):
            _log.debug("the failure could not be published", exc_info=True)
        self._announce()
        return first

    def publish(self, record: CallRecord) -> None:
        """Publish what this rank was doing. Only the first record counts."""
        if not self._wrote:
            self._wrote = True
            self._set(f"record/{record.rank}", json.dumps(asdict(record)))

    def records(self, timeout_s: float, dead: Collection[int] = ()) -> dict[int, CallRecord]:
        """Return the records that come within `timeout_s`, by rank; do not wait for `dead` ones."""
        found: dict[int, CallRecord] = {}
        awaited = self._size - len(dead)
        deadline = time.monotonic() + timeout_s
        while True:
            for rank in range(self._size):
                if rank not in found:
                    record = self._read(f"record/{rank}")
                    if record is not None:
                        found[rank] = record
            if len(found) >= awaited or time.monotonic() >= deadline:
                return found
            time.sleep(0.02)

    def begin_close(self, sequence: int) -> None:
        """Ask the others to confirm that they need nothing after `sequence`. Rank 0."""
        self._set("closing", str(sequence))
        self._announce()

    def confirm_close(self) -> None:
        """Confirm that this rank needs no more results of the aggregator."""
        self._set(f"closed/{self._rank}", "1")

    def unconfirmed(self, timeout_s: float) -> list[int]:
        """Return the ranks that have not confirmed within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        missing = [rank for rank in range(self._size) if rank != self._rank]
        while True:
            missing = [rank for rank in missing if not self._has(f"closed/{rank}")]
            if not missing or time.monotonic() >= deadline:
                return missing
            time.sleep(0.01)

    def _announce(self) -> None:
        self._set("notice", "1")
        for rank in range(self._size):
            self._set(wake_key(rank), "1")

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
        if not self._has(key):
            return None
        try:
            # Present, so this returns at once; the limit is for a store that dies meanwhile.
            self._store.wait([key], timedelta(seconds=2))
            return self._store.get(key).decode()
        except RuntimeError:
            return None

    def _set(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value)
        except RuntimeError:
            _log.debug("the store rejected %s", key, exc_info=True)


class Watcher:
    """A thread of one group that calls `news` once, when another rank has failed or rank 0 closes.

    On a TCPStore, which torchrun uses, it sleeps in the socket's receive, on a connection of its
    own: an idle rank uses no processor time.

    Args:
        store: The group's store, used by no other thread.
        rank: Own rank in the group.
        name: Name of the thread.
        news: Called in this object's thread.
    """

    def __init__(self, store: Store, rank: int, name: str, news: Callable[[], None]) -> None:
        self._store = store
        self._keys = [wake_key(rank)]
        self._news = news
        self._stopping = threading.Event()
        self._blocks = blocks_without_polling(store)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self, waker: Store) -> None:
        """End the thread. `waker` is the same store for the calling thread."""
        self._stopping.set()
        if self._blocks:
            with contextlib.suppress(RuntimeError):
                waker.set(self._keys[0], "stop")
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            found = self._wait() if self._blocks else self._poll()
        except RuntimeError:
            # The store is gone, and with it all news. Operations still notice failures.
            _log.debug("the store cannot be watched", exc_info=True)
            return
        if found and not self._stopping.is_set():
            self._news()

    def _wait(self) -> bool:
        while not self._stopping.is_set():
            try:
                self._store.wait(self._keys, _ONE_WAIT)
            except RuntimeError as error:
                # Each kind of store has its own class and spelling of this error.
                if "timeout" not in str(error).lower():
                    raise
            else:
                return True
        return False

    def _poll(self) -> bool:
        while not self._stopping.wait(_POLL_S):
            if self._store.check(self._keys):
                return True
        return False
