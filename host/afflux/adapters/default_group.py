"""torch's default group of this process, if it is Afflux's: groups made later have its options."""

import weakref
from collections.abc import Callable
from typing import Any

from afflux.group.core import Group

__all__ = ["default_group"]


class _DefaultGroup:
    def __init__(self) -> None:
        self._core: Callable[[], Group | None] = lambda: None

    def be(self, core: Group) -> None:
        """Remember a group, weakly."""
        self._core = weakref.ref(core)

    def replaces(self, old: Group, new: Group) -> None:
        """Remember a group that takes another one's place, if that was the default group."""
        if self._core() is old:
            self.be(new)

    @property
    def options(self) -> Any:
        """The group's `pg_options`; None if there is no such group."""
        core = self._core()
        # An earlier default group says nothing about this one's.
        return None if core is None or core.closed else core.pg_options


default_group = _DefaultGroup()
