"""Hooks of a model that neither keep their owner alive, nor hinder copies of the model."""

import contextlib
import weakref
from typing import Any

__all__ = ["WeakHook"]


class WeakHook:
    """Calls a method of an object, as long as the object lives.

    A copy or pickle of the model gets a call that does nothing, and needs no Afflux to be loaded.

    Args:
        owner: The object whose method it is.
        method: Its name.
        first: Arguments before those of the call.
    """

    def __init__(self, owner: object, method: str, *first: Any) -> None:
        self._owner = weakref.ref(owner)
        self._method = method
        self._first = first

    def __call__(self, *arguments: Any) -> None:
        """Call."""
        owner = self._owner()
        if owner is not None:
            getattr(owner, self._method)(*self._first, *arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """Become the least that takes any arguments and returns None."""
        return getattr, (contextlib.nullcontext(), "__exit__")
