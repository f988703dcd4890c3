"""The groups of this process that live: what becomes of them when it ends, or forks."""

import atexit
import contextlib
import ctypes
import os
import weakref
from typing import Protocol

# Registers its end before the groups', which so come first: they still need their aggregators.
import afflux.group.launched_aggregator  # noqa: F401

__all__ = ["living"]

_EXIT_DRAIN_S = 1.0
"""When the interpreter ends, nobody waits for results any more."""


class _Closable(Protocol):
    def close_at_exit(self, seconds: float) -> None: ...


living: "weakref.WeakSet[_Closable]" = weakref.WeakSet()


def _close_all() -> None:
    # A thread that still waits when the interpreter ends could not end cleanly.
    for group in list(living):
        with contextlib.suppress(Exception):
            group.close_at_exit(_EXIT_DRAIN_S)


def _keep_all() -> None:
    # A forked process has copies of groups, and no threads of Gloo's, for which its destructor
    # waits: nothing may drop the copies, not even the end of the interpreter.
    for group in list(living):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


atexit.register(_close_all)
os.register_at_fork(after_in_child=_keep_all)
