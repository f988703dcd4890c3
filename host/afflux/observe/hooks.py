"""Functions of the user's that are called before and after each call, and when a group fails.

An error in a hook is logged with its traceback, and changes nothing else: the collective goes on,
and the hook is called again next time. Calls that a hook itself makes in the group are carried out
without hooks. KeyboardInterrupt and SystemExit pass through.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from afflux.observe.observation import Observation

__all__ = ["AbortHook", "CallHook", "HookHandle", "Hooks"]

_log = logging.getLogger("afflux")

CallHook = Callable[[Observation], object]
"""Gets the call: before it is carried out, or when it is over."""

AbortHook = Callable[[BaseException], object]
"""Gets the error with which the group ends."""


class HookHandle:
    """Removes hooks again; also as a context manager.

    Args:
        remove: Removes them.
    """

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove

    def remove(self) -> None:
        """Remove the hooks. A second time does nothing."""
        self._remove()

    def __enter__(self) -> "HookHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one group, called in the order of their registration.

    Args:
        changed: Called when the first has come or the last has gone.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._inside = threading.local()
        # Replaced, never changed: a call walks through the hooks that there were at its start.
        self._before: tuple[CallHook, ...] = ()
        self._after: tuple[CallHook, ...] = ()
        self._abort: tuple[AbortHook, ...] = ()

    @property
    def watch_calls(self) -> bool:
        """Whether there are hooks for calls."""
        return bool(self._before or self._after)

    def register(
        self, before: CallHook | None, after: CallHook | None, abort: AbortHook | None
    ) -> HookHandle:
        """Add hooks; return what removes them.

        Raises:
            TypeError: One cannot be called, or there is none.
        """
        given = {"before": before, "after": after, "abort": abort}
        if all(hook is None for hook in given.values()):
            raise TypeError("register_hook needs at least one of before, after and abort")
        for name, hook in given.items():
            if hook is not None and not callable(hook):
                raise TypeError(f"the hook {name}={hook!r} cannot be called")
        with self._lock:
            self._before += (before,) if before else ()
            self._after += (after,) if after else ()
            self._abort += (abort,) if abort else ()
        self._changed()
        removed = threading.Event()

        def remove() -> None:
            with self._lock:
                if removed.is_set():
                    return
                removed.set()
                self._before = _without(self._before, before)
                self._after = _without(self._after, after)
                self._abort = _without(self._abort, abort)
            self._changed()

        return HookHandle(remove)

    def call_before(self, observation: Observation) -> None:
        """Call the hooks for a call that begins."""
        self._call(self._before, "before", observation)

    def call_after(self, observation: Observation) -> None:
        """Call the hooks for a call that is over."""
        self._call(self._after, "after", observation)

    def call_abort(self, error: BaseException) -> None:
        """Call the hooks for a group that ends with an error."""
        self._call(self._abort, "abort", error)

    def _call(self, hooks: tuple[Callable[[Any], object], ...], when: str, about: Any) -> None:
        if not hooks or getattr(self._inside, "a_hook", False):
            return
        self._inside.a_hook = True
        try:
            for hook in hooks:
                try:
                    hook(about)
                except Exception:
                    _log.exception("the %s hook %r failed (%s)", when, hook, about)
        finally:
            self._inside.a_hook = False


def _without(hooks: tuple[Any, ...], hook: Any) -> tuple[Any, ...]:
    """Return the hooks without one occurrence of `hook`."""
    if hook is None:
        return hooks
    index = hooks.index(hook)
    return hooks[:index] + hooks[index + 1 :]
