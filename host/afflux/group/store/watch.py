"""The thread that learns of news in a store, one for all groups of this process.

On a TCPStore, which torchrun uses, it sleeps in the socket's receive until this process's key
appears: an idle rank uses no processor time. A rank with news for another writes the key of that
rank's process; the thread looks which of its groups the news is about, and takes the key away. News
are written before the key, so none is lost. Other kinds of stores can only be polled.
"""

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from torch._C._distributed_c10d import Store, TCPStore

from afflux.group.call.parts import ListKeys
from afflux.group.store.bounded import Asker, BoundedStore

__all__ = [
    "NEWS_KEY",
    "StoreWatch",
    "acquire_watch",
    "forget_left",
    "note_left",
    "release_watch",
]

_log = logging.getLogger("afflux")

NEWS_KEY = "notice"
"""Under a group's prefix: there once a rank has failed, or rank 0 closes."""

_ENDED = "/ended"
"""Behind a process's key: it needs no news any more."""

_POLL_S = 0.5
"""For stores that can only be polled, such as a FileStore."""

_ONE_WAIT = timedelta(days=20)
"""The store counts milliseconds in 31 bits."""

_JOIN_S = 2.0

_HEARD_S = 0.5
"""A thread that is woken looks within milliseconds, unless its process has ended."""


class StoreWatch:
    """Watches one store for all groups of this process that use it.

    Args:
        root: The store, without prefixes.
        limit_s: How long it may take to connect to it.

    Attributes:
        key: Which store it is.
        asked: For short calls of any thread: of a TCPStore a connection of its own, of which there
            is one for each process; otherwise the store itself.
        connection: The torch store of `asked`.
        stopping: Set when nobody in this process needs the store's news any more.
        tidying: Deletes what groups have left; None until there is something.
        tidied: The connection for that; None before.
        wake_key: Appears in the store when there is news for this process; empty if it polls.
    """

    def __init__(self, root: Store, limit_s: float) -> None:
        self.users = 0
        self.owner = os.getpid()
        self.key = _key_of(root)
        self._blocks = isinstance(root, TCPStore)
        self._asker = Asker()
        self.connection: Any = root
        if self._blocks:
            # A FileStore's clone would count as one more user, of whom the last deletes the file.
            self.connection = self._asker.ask(root.clone, limit_s, root)  # type: ignore[attr-defined]
        self.asked = BoundedStore(self.connection, self._asker)
        self.wake_key = f"afflux/wake/{secrets.token_hex(8)}" if self._blocks else ""
        self._woken: set[str] = set()
        self._groups: dict[str, Callable[[], None]] = {}
        # Re-entrant: a signal handler may run in the middle of any of these lines.
        self._lock = threading.RLock()
        self.stopping = threading.Event()
        self.tidying: Asker | None = None
        self.tidied: Any = None
        # The thread asks the store for nothing while this is not set.
        self._has_groups = threading.Event()
        self._left_early = False
        self._thread: threading.Thread | None = None

    def add(self, prefix: str, news: Callable[[], None]) -> None:
        """Call `news` once, in this object's thread, when there is news under `prefix`.

        A group may have several, of which the one with the shortest prefix ends the others.
        """
        with self._lock:
            self._groups[prefix] = news
            self._has_groups.set()
            if self._thread is None and not self.stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="afflux-watch", daemon=True)
                self._thread.start()

    def remove(self, prefix: str) -> None:
        """Forget a group. Callbacks that run already may still be running."""
        with self._lock:
            if self._pop(prefix) is not None:
                self._left_early = True

    def wake(self, wake_key: str, lives: bool = True) -> None:
        """Wake the process with this key, after the news for it has been written.

        Args:
            wake_key: The key.
            lives: Whether it is known to live; if not, `stop` does not wait until it has looked.
        """
        self.asked.set(wake_key, "1")
        if lives:
            self._woken.add(wake_key)

    def stop(self) -> None:
        """End the thread, once the processes that this one has woken have looked.

        The store's server may end with this process; torch would write to stderr what they find.
        """
        deadline = time.monotonic() + _HEARD_S
        with contextlib.suppress(RuntimeError):
            # A rank that has heard that all of its groups are closed has no need to say so, and
            # perhaps no store to say it to. One that has woken others may be woken by them, too.
            if self._blocks and (self._left_early or self._woken):
                self.asked.set(self.wake_key + _ENDED, "1")
            for key in self._woken - {self.wake_key}:
                while self._asleep(key) and time.monotonic() < deadline:
                    time.sleep(0.002)
        self.stopping.set()
        if self.tidying is not None:
            self.tidying.end()
        waits = self._has_groups.is_set()
        self._has_groups.set()
        thread = self._thread
        if thread is not None:
            if self._blocks and waits:
                with contextlib.suppress(RuntimeError):
                    self.asked.set(self.wake_key, "stop")
            if thread is not threading.current_thread():
                thread.join(_JOIN_S)
        self._asker.end()

    def _asleep(self, wake_key: str) -> bool:
        check = self.asked.check
        return check([wake_key]) and not check([wake_key + _ENDED])

    def _run(self) -> None:
        try:
            if self._blocks:
                self._wait(self.connection.clone())
            else:
                while not self.stopping.wait(_POLL_S):
                    self._look(self.connection)
        except RuntimeError:
            # The store is gone, and with it all news. Operations still notice failures.
            _log.debug("the store cannot be watched", exc_info=True)

    def _wait(self, store: Store) -> None:
        while not self.stopping.is_set():
            # A rank that has heard all that there is waits for nothing more of the store.
            self._has_groups.wait()
            if self.stopping.is_set():
                return
            try:
                store.wait([self.wake_key], _ONE_WAIT)
            except RuntimeError as error:
                # Each kind of store has its own class and spelling of this error.
                if "timeout" not in str(error).lower():
                    raise
                continue
            if not self.stopping.is_set():
                self._look(store)
                store.delete_key(self.wake_key)
                # The news written after the first look, before the key was taken away.
                self._look(store)

    def _look(self, store: Store) -> None:
        with self._lock:
            prefixes = list(self._groups)
        for prefix in prefixes:
            if store.check([f"{prefix}/{NEWS_KEY}"]):
                with self._lock:
                    news = self._pop(prefix)
                    if not self._groups:
                        self._has_groups.clear()
                if news is not None:
                    news()

    def _pop(self, prefix: str) -> Callable[[], None] | None:
        for each in [name for name in self._groups if name.startswith(f"{prefix}/")]:
            del self._groups[each]
        return self._groups.pop(prefix, None)


class _Left(NamedTuple):
    """A group that this process has left."""

    prefix: str
    rank: int
    size: int
    ours: bool = False
    """Whether all have left it, and its keys are this process's to delete."""


class _Watches:
    """The watches of this process, by store, and the keys that it has left there."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.by_store: dict[object, StoreWatch] = {}
        self.left: dict[object, list[_Left]] = {}


_own = _Watches()


def _key_of(root: Store) -> object:
    return (root.host, root.port) if isinstance(root, TCPStore) else id(root)


def acquire_watch(root: Store, limit_s: float) -> StoreWatch:
    """Return this process's watch of a store, for one more group.

    Args:
        root: The store, without prefixes.
        limit_s: How long it may take to connect to it.

    Raises:
        StoreSilent: It does not answer.
    """
    with _own.lock:
        key = _key_of(root)
        watch = _own.by_store.get(key)
        if watch is None:
            watch = StoreWatch(root, limit_s)
            # A signal handler that has made a group meanwhile has made it first.
            watch = _own.by_store.setdefault(key, watch)
        watch.users += 1
        return watch


def release_watch(watch: StoreWatch) -> None:
    """Let go of a watch for one group; it ends with the last one."""
    if watch.owner != os.getpid():
        return
    with _own.lock:
        watch.users -= 1
        if watch.users:
            return
        _own.by_store = {key: each for key, each in _own.by_store.items() if each is not watch}
    watch.stop()


def note_left(watch: StoreWatch, prefix: str, rank: int, size: int) -> None:
    """Note that this process needs nothing any more that is under a group's prefix.

    Nothing is written yet: the store may be about to end with the program. See `forget_left`.

    Args:
        watch: Of the store.
        prefix: The group's, which no other group has.
        rank: Own rank in the group.
        size: Ranks of the group.
    """
    if watch.wake_key:
        with _own.lock:
            _own.left.setdefault(watch.key, []).append(_Left(prefix, rank, size))


def forget_left(watch: StoreWatch, list_keys: ListKeys | None) -> None:
    """Delete, in the background, the keys of groups that have been left, here and by all ranks.

    For whoever makes one group more: so a store holds the keys of groups that live, and of the
    latest that do not, however many there have been.

    Args:
        watch: Of the store.
        list_keys: Lists the store; None if the keys are to stay there.
    """
    with _own.lock:
        left = _own.left.pop(watch.key, [])
    if left and list_keys is not None:
        # Not on the connection for notices, which would wait for all of it.
        watch.tidying = watch.tidying or Asker()
        watch.tidying.later(lambda: _forget_over(watch, left, list_keys))


def _forget_over(watch: StoreWatch, left: list[_Left], list_keys: ListKeys) -> None:
    # One for all times: a store's server may ask a name service about each connection, and wait.
    watch.tidied = watch.tidied or watch.connection.clone()
    more = _forget(watch.tidied, left, watch.stopping, list_keys)
    if more:
        with _own.lock:
            _own.left.setdefault(watch.key, []).extend(more)


def _forget(
    store: Any, left: list[_Left], stopping: threading.Event, list_keys: ListKeys
) -> list[_Left]:
    """Delete the keys of groups that all have left; return what is still to do when stopped."""
    ours: list[_Left] = []
    for at, group in enumerate(left):
        if stopping.is_set():
            return ours + left[at:]
        if group.ours or _is_ours(store, group):
            ours.append(group._replace(ours=True))
    prefixes = tuple(f"{group.prefix}/" for group in ours)
    for key in list_keys(store) if ours else []:
        if stopping.is_set():
            return ours
        if key.startswith(prefixes):
            store.delete_key(key)
    return []


def _is_ours(store: Any, group: _Left) -> bool:
    """Say that this rank has left; return whether all have, and no other has taken the rest."""
    store.set(f"{group.prefix}/left/{group.rank}", "1")
    if not store.check([f"{group.prefix}/left/{rank}" for rank in range(group.size)]):
        return False
    # Two that come last find it both. A rank that asks when the other has deleted all deletes this.
    own = str(group.rank)
    return bool(store.compare_set(f"{group.prefix}/left", "", own).decode() == own)


# A forked process has no thread, and no right to its parent's connections; the lock may be held.
os.register_at_fork(after_in_child=_own.__init__)  # type: ignore[misc]
