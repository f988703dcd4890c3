"""A group's keys in torch's store, apart from all others, on as many connections as it takes."""

import contextlib
import time

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from afflux.group.call.parts import ListKeys
from afflux.group.store.bounded import Asker, BoundedStore, innermost
from afflux.group.store.watch import (
    StoreWatch,
    acquire_watch,
    forget_left,
    note_left,
    release_watch,
)

__all__ = ["GroupStore", "master_of", "waker_key"]


def master_of(store: Store) -> str | None:
    """Return the host name of the store's server, if it has one."""
    root = innermost(store)
    return root.host if isinstance(root, TCPStore) else None


def waker_key(rank: int) -> str:
    """Return the key that holds what wakes this rank's process."""
    return f"waker/{rank}"


class GroupStore:
    """The keys of one group in torch's store, and of this incarnation of it only.

    A group that is made again, in the same process or after a restart, finds the keys of its last
    incarnation under the names that torch gives to both. So its keys are under a name that is drawn
    anew.

    Args:
        store: As torch hands it to a new group.
        incarnation: Drawn by rank 0 for this incarnation of the group; the same at all ranks.
        rank: Own rank in the group.
        size: Ranks of the group.
        asker: Asks over torch's own connection; None for one of its own.
        limit_s: How long it may take to connect to the store.

    Attributes:
        incarnation: As given.
        prefix: Of the keys, in the store without torch's prefixes.
        store: The keys over torch's own connection, for the thread that makes the group.
        asked: The same, asked by `asker`.
        met: The keys under which the ranks have met, and those that this rank has written there.
        notices: The keys over the connection that this process keeps for notices. On a TCPStore a
            call that blocks holds up all other calls on its connection. Nothing blocks on this.
        watch: This process's, of the same store.
    """

    def __init__(
        self,
        store: Store,
        incarnation: str,
        rank: int,
        size: int,
        asker: Asker | None = None,
        limit_s: float = 60.0,
    ) -> None:
        deadline = time.monotonic() + limit_s
        self._rank, self._size = rank, size
        self.met: tuple[BoundedStore, list[str]] | None = None
        root = innermost(store)
        self.incarnation = incarnation
        self.prefix = f"afflux/{incarnation}"
        self.store = PrefixStore(self.prefix, root)
        self._asker = asker if asker is not None else Asker()
        self.asked = BoundedStore(self.store, self._asker)
        self.watch: StoreWatch = acquire_watch(root, limit_s)
        self._released = False
        if self.watch.wake_key:
            self.asked.until(deadline).set(waker_key(rank), self.watch.wake_key)

    @property
    def notices(self) -> BoundedStore:
        """Any thread may use it."""
        return self.watch.asked.under(self.prefix)

    def tidy(self, list_keys: ListKeys | None) -> None:
        """Delete what is no longer needed, once the ranks are connected: all of them have met.

        Args:
            list_keys: Lists the store; None if the keys of earlier groups are to stay there.
        """
        # The file of a FileStore only grows, and other stores cannot be listed.
        if not self.watch.wake_key:
            return
        if self.met is not None:
            store, names = self.met
            with contextlib.suppress(RuntimeError):
                for name in names:
                    store.delete_key(name)
        forget_left(self.watch, list_keys)

    def release(self, left: bool = False) -> None:
        """Let go of what the groups of this process share, after the group's last notice.

        Args:
            left: Whether the group had been made, and this rank needs none of its keys any more.
        """
        if not self._released:
            self._released = True
            if left:
                note_left(self.watch, self.prefix, self._rank, self._size)
            release_watch(self.watch)
            self._asker.end()
