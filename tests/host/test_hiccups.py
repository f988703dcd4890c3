"""A store that does not answer for a while, and then does: nothing is lost by it."""

import threading
import time
import types

import pytest
from torch._C._distributed_c10d import HashStore

from afflux.group import bounded_store
from afflux.group.bounded_store import Asker, BoundedStore
from afflux.group.exchange import Exchange
from afflux.group.notices import Notices

LIMIT_S = 20.0


class Hiccup:
    """A store that is silent until `end`.

    Attributes:
        own: The store itself.
        keys: The same, as parts of a group ask it.
    """

    def __init__(self) -> None:
        self.own = HashStore()
        self._over = threading.Event()
        asker = Asker()
        self.keys = BoundedStore(self.own, asker)
        asker.later(lambda: self._over.wait(LIMIT_S))

    def end(self) -> None:
        self._over.set()

    def notices(self, rank: int, size: int) -> Notices:
        watch = types.SimpleNamespace(wake_key="")
        return Notices(types.SimpleNamespace(notices=self.keys, watch=watch), rank, size)


@pytest.fixture
def hiccup(monkeypatch):
    monkeypatch.setattr(bounded_store, "_BRIEF_S", 0.1)
    store = Hiccup()
    yield store
    store.end()


def test_a_silent_store_does_not_say_that_all_have_confirmed(hiccup):
    assert hiccup.notices(0, 3).unconfirmed(0.3) == [1, 2]


def test_who_confirms_during_the_silence_is_heard(hiccup):
    hiccup.own.set("closed/1", "1")
    ending = threading.Timer(0.4, hiccup.end)
    ending.start()
    assert hiccup.notices(0, 2).unconfirmed(LIMIT_S) == []
    ending.join()


def test_a_failure_reported_to_a_silent_store_is_written_later(hiccup):
    exchange = Exchange(hiccup.keys, 1, 2, LIMIT_S)
    exchange.report(OSError("drawn"))
    assert exchange.failure() == ""
    hiccup.end()
    late = hiccup.keys.until(time.monotonic() + LIMIT_S)
    assert late.find("finding/1") is not None
    assert late.find("failed") == b"rank 1: drawn"
