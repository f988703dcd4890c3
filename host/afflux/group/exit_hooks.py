"""The groups of this process that live: what becomes of them when it ends, or forks."""

import atexit
import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

# Registers its end before the groups', which so come first: they still need their aggregators.
import afflux.group.forming.launched_aggregator  # noqa: F401
from afflux_drivers import _native

__all__ = ["before_end", "end_users", "is_exiting", "open_groups"]

_EXIT_DRAIN_S = 1.0
"""When the interpreter ends, nobody waits for results any more."""


class _Closable(Protocol):
    def close_at_exit(self, seconds: float) -> None: ...


open_groups: "weakref.WeakSet[_Closable]" = weakref.WeakSet()

_users: "weakref.WeakKeyDictionary[_Closable, list[Callable[[], None]]]" = (
    weakref.WeakKeyDictionary()
)


def before_end(group: _Closable, call: Callable[[], None]) -> None:
    """Have `call` called before a group ends that is not aborted; it may still use the group."""
    _users.setdefault(group, []).append(call)


def end_users(group: _Closable) -> None:
    """Let those end what they do who asked to be called before a group ends."""
    for call in _users.pop(group, ()):
        with contextlib.suppress(Exception):
            call()


def is_exiting() -> bool:
    """Return whether the interpreter waits for threads no more, and soon ends under those left.

    True in functions that are registered with `atexit`, which may destroy groups themselves.
    """
    return not threading.main_thread().is_alive()


def _close_all() -> None:
    # A thread that still waits when the interpreter ends could not end cleanly.
    for group in list(open_groups):
        with contextlib.suppress(Exception):
            group.close_at_exit(_EXIT_DRAIN_S)
    # Daemons may be in a collective even now, or begin one that is refused.
    _native.let_threads_sleep()


def _keep_all() -> None:
    # A forked process has copies of groups, and no threads of Gloo's, for which its destructor
    # waits: nothing may drop the copies, not even the end of the interpreter.
    for group in list(open_groups):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


atexit.register(_close_all)
os.register_at_fork(after_in_child=_keep_all)
