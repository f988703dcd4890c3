"""How an idle rank learns of news without looking for it: it sleeps until the store wakes it."""

import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import Store

from afflux.board import wake_key
from afflux.stores import blocks_without_polling

__all__ = ["Watcher"]

_log = logging.getLogger("afflux")

_POLL_S = 0.5
"""For stores that can only be asked again and again, such as a FileStore."""

_ONE_WAIT = timedelta(days=20)
"""The store counts milliseconds in 31 bits."""

_JOIN_S = 2.0


class Watcher:
    """A thread of one group that calls `news` once, when another rank has failed or rank 0 closes.

    On a TCPStore, which torchrun brings, it sleeps in the socket's receive, on a connection of its
    own: an idle rank uses no processor.

    Args:
        store: Of the group, used by no other thread.
        rank: Own rank in the group.
        name: For the thread.
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
            # The store is gone, and with it whoever could tell. Operations still see failures.
            _log.debug("the store can not be watched", exc_info=True)
            return
        if found and not self._stopping.is_set():
            self._news()

    def _wait(self) -> bool:
        while not self._stopping.is_set():
            try:
                self._store.wait(self._keys, _ONE_WAIT)
            except RuntimeError as error:
                # Each kind of store has a class and a spelling of its own for this.
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
