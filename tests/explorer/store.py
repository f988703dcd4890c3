"""torch's store in virtual time: each request travels there and back, and others come between."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar

from afflux.group.store.bounded import BoundedStore
from afflux.group.store.watch import NEWS_KEY
from tests.explorer.scheduler import Scheduler

__all__ = ["Keys", "Shelf", "VirtualStore"]

_T = TypeVar("_T")


class Shelf:
    """What the store's server has.

    Attributes:
        values: By key.
        watched: Of each waker what looks for news.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.watched: dict[str, Callable[[], None]] = {}


class VirtualStore(BoundedStore):
    """One rank's connection.

    Args:
        shelf: The server's.
        scheduler: Of all.
        delay: Draws how long a request travels, one way.
        prefix: Of the keys.
    """

    def __init__(
        self, shelf: Shelf, scheduler: Scheduler, delay: Callable[[], float], prefix: str = ""
    ) -> None:
        self._shelf, self._scheduler, self._delay, self._prefix = shelf, scheduler, delay, prefix

    def until(self, deadline: float) -> "VirtualStore":
        return self

    def under(self, prefix: str) -> "VirtualStore":
        return VirtualStore(self._shelf, self._scheduler, self._delay, f"{self._prefix}{prefix}/")

    @property
    def silence(self) -> str:
        return ""

    def check(self, keys: list[str]) -> bool:
        return self._there(lambda values: all(self._prefix + key in values for key in keys))

    def get(self, key: str) -> bytes:
        return self._there(lambda values: values[self._prefix + key])

    def find(self, key: str) -> bytes | None:
        return self._there(lambda values: values.get(self._prefix + key))

    def set(self, key: str, value: str) -> None:
        self._there(lambda values: values.update({self._prefix + key: value.encode()}))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        name = self._prefix + key
        return self._there(lambda values: values.setdefault(name, desired.encode()))

    def _there(self, action: Callable[[dict[str, bytes]], _T]) -> _T:
        self._scheduler.sleep(self._delay())
        found = action(self._shelf.values)
        self._scheduler.sleep(self._delay())
        return found


class Keys:
    """What a rank has of its group's keys, as `GroupStore`.

    Args:
        shelf, scheduler, delay: As for `VirtualStore`.
        rank: Own.
        world: What stands behind patched names finds it here, in place of a store.
    """

    prefix = "group"
    incarnation = "virtual"

    def __init__(
        self,
        shelf: Shelf,
        scheduler: Scheduler,
        delay: Callable[[], float],
        rank: int,
        world: object,
    ) -> None:
        self.store = SimpleNamespace(world=world, rank=rank)
        self.notices = VirtualStore(shelf, scheduler, delay, "group/")
        self.watch = self
        self._shelf, self._scheduler, self._delay = shelf, scheduler, delay
        self._groups: dict[str, Callable[[], None]] = {}
        shelf.values[f"group/waker/{rank}"] = str(rank).encode()
        shelf.watched[str(rank)] = self._look

    def add(self, prefix: str, news: Callable[[], None]) -> None:
        self._groups[prefix] = news

    def wake(self, key: str) -> None:
        self._scheduler.at(self._scheduler.now + self._delay(), self._shelf.watched[key])

    def _look(self) -> None:
        for prefix in list(self._groups):
            if f"{prefix}/{NEWS_KEY}" in self._shelf.values:
                self._groups.pop(prefix)()
