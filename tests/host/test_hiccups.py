"""A store that does not answer for a while, and ranks that wait in vain: nobody is left behind."""

import json
import threading
import time
import types
from collections.abc import Callable
from dataclasses import asdict

import pytest
from torch._C._distributed_c10d import HashStore

from afflux.group import bounded_store, exchange
from afflux.group.bounded_store import Asker, BoundedStore
from afflux.group.exchange import Exchange, RendezvousError
from afflux.group.notices import CallRecord, Notices
from afflux.group.parts import PYTHON_PARTS
from afflux.group.progress import Progress

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

    def progress(self, rank: int, size: int) -> tuple[Progress, Callable[[], None]]:
        """Return the thread of a group that does nothing else, and what tells it of news."""
        told: list[Callable[[], None]] = []
        watch = types.SimpleNamespace(
            add=lambda _prefix, news: told.append(news), remove=lambda _prefix: None
        )
        keys = types.SimpleNamespace(prefix="", watch=watch)
        notices = self.notices(rank, size)
        progress = Progress(
            notices, keys, str, list, lambda *_: None, PYTHON_PARTS, rank, size, "hiccup"
        )
        return progress, told[0]


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
    failing = Exchange(hiccup.keys, 1, 2, LIMIT_S)
    failing.report(OSError("drawn"))
    assert failing.failure() == ""
    hiccup.end()
    late = hiccup.keys.until(time.monotonic() + LIMIT_S)
    assert late.find("finding/1") is not None
    assert late.find("failed") == b"rank 1: drawn"


def test_rank_0_goes_by_the_verdict_of_a_rank_that_has_given_up(monkeypatch):
    monkeypatch.setattr(exchange, "_GRACE_S", 0.1)
    store = HashStore()
    # Its own limit counts, as in a job whose ranks have different ones, or start late.
    with pytest.raises(RendezvousError, match=r"^rank 1: drawn; .* waited for rank 0 to say"):
        Exchange(store, 1, 2, 0.1).verdict(RendezvousError("rank 1: drawn"), True, 0.1)
    with pytest.raises(RendezvousError, match=r"^rank 1: drawn; .* waited for rank 0 to say"):
        Exchange(store, 0, 2, LIMIT_S).verdict(None, True, LIMIT_S)


def test_a_rank_that_gives_up_goes_by_the_verdict_that_came_meanwhile(monkeypatch):
    store = HashStore()
    late = Exchange(store, 1, 2, LIMIT_S)
    late.report(OSError("drawn"))
    assert Exchange(store, 0, 2, LIMIT_S).verdict(None, True, LIMIT_S) == "rank 1: drawn"

    def give_up(*_arguments, **_named):
        raise RendezvousError("timed out")

    monkeypatch.setattr(late, "_collect", give_up)
    assert late.verdict(OSError("drawn"), True, LIMIT_S) == "rank 1: drawn"


@pytest.mark.parametrize("news", ["failure", "closing"])
def test_news_that_a_silent_store_does_not_tell_are_asked_for_again(hiccup, news):
    progress, tell = hiccup.progress(1, 2)
    failure = CallRecord(0, 1, "all_reduce", True, "drawn")
    hiccup.own.set(news, json.dumps(asdict(failure)) if news == "failure" else "0")
    hiccup.own.set("notice", "1")
    tell()
    time.sleep(0.3)
    assert progress.failure is None
    hiccup.end()
    deadline = time.monotonic() + LIMIT_S
    while progress.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    text = {"failure": "rank 0 failed: drawn", "closing": "rank 0 has destroyed the group"}[news]
    assert text in str(progress.failure)
    assert hiccup.own.check(["closed/1"]) == (news == "closing")
    progress.stop(LIMIT_S)
