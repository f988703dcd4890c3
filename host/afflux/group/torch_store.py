"""Connections of torch's stores: one for each thread, and whether a wait blocks."""

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

__all__ = ["blocks_without_polling", "master_of", "own_connection"]


def _innermost(store: Store) -> Store:
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def own_connection(store: Store) -> Store:
    """Return the same store for a thread of its own.

    A call that blocks on a TCPStore holds up all other calls on that connection, so this opens a
    second one. The other kinds have no such connection, and a FileStore's clone would count as one
    more user, of whom the last deletes the file.
    """
    if isinstance(_innermost(store), TCPStore):
        return store.clone()  # type: ignore[attr-defined]
    return store


def master_of(store: Store) -> str | None:
    """Return the host name of the store's server, if it has one."""
    innermost = _innermost(store)
    return innermost.host if isinstance(innermost, TCPStore) else None


def blocks_without_polling(store: Store) -> bool:
    """Return whether a thread sleeps until a key is there, and holds up no other."""
    return isinstance(_innermost(store), TCPStore)
