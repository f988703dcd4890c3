"""A store that does not answer for a while, and ranks that wait in vain: nobody is left behind."""

import json
import threading
import time
import types
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from torch._C._distributed_c10d import FileStore, HashStore, TCPStore

from afflux.group.call.parts import PYTHON_PARTS
from afflux.group.progress import Progress
from afflux.group.store import bounded, exchange
from afflux.group.store.bounded import Asker, BoundedStore
from afflux.group.store.exchange import Exchange, RendezvousError
from afflux.group.store.notices import CallRecord, Notices

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
        keys: Any = types.SimpleNamespace(notices=self.keys, watch=watch)
        return Notices(keys, rank, size)

    def progress(self, rank: int, size: int) -> tuple[Progress, Callable[[], None]]:
        """Return the thread of a group that does nothing else, and what tells it of news."""
        told: list[Callable[[], None]] = []
        watch = types.SimpleNamespace(
            add=lambda _prefix, news: told.append(news), remove=lambda _prefix: None
        )
        keys: Any = types.SimpleNamespace(prefix="", watch=watch)
        progress = Progress(
            self.notices(rank, size),
            keys,
            give_up=lambda _reason: None,
            finish=lambda _handed: [],
            has_failed=lambda _error, _records: None,
            parts=PYTHON_PARTS,
            rank=rank,
            size=size,
            name="hiccup",
        )
        return progress, told[0]


@pytest.fixture
def hiccup(monkeypatch):
    monkeypatch.setattr(bounded, "_BRIEF_S", 0.1)
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


def make_store(kind, folder):
    if kind == "tcp":
        return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return FileStore(str(folder / "store"), 1) if kind == "file" else HashStore()


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
def test_to_look_for_a_key_writes_nothing(kind, tmp_path):
    own = make_store(kind, tmp_path)
    store = BoundedStore(own, Asker()).under("prefix")
    assert store.find("key") is None
    assert not store.check(["key"])
    store.set("key", "value")
    assert store.find("key") == b"value"
    store.set("key", "")
    assert store.find("key") == b""


class Tidied:
    """A store whose keys go between a check and what follows it, as when ranks tidy up."""

    def __init__(self) -> None:
        self.own = HashStore()
        self.own.set("key", "value")

    def check(self, names: list[str]) -> bool:
        there = self.own.check(names)
        self.own.delete_key("key")
        return there

    def get(self, name: str) -> bytes:
        assert self.own.check([name]), "torch's store would wait"
        return self.own.get(name)

    def compare_set(self, name: str, expected: str, desired: str) -> bytes:
        return self.own.compare_set(name, expected, desired)


def test_a_key_that_goes_after_a_check_is_not_waited_for():
    store: Any = Tidied()
    assert BoundedStore(store, Asker()).find("key") == b"value"


def test_nobody_waits_for_what_a_rank_says_that_has_ended_by_anothers_record():
    woken: dict[str, object] = {}
    watch = types.SimpleNamespace(wake_key="own", wake=woken.setdefault)
    keys: Any = types.SimpleNamespace(notices=BoundedStore(HashStore(), Asker()), watch=watch)
    for rank in range(3):
        keys.notices.set(f"waker/{rank}", f"of {rank}")
    noticed = CallRecord(0, 1, "all_reduce", True, "rank(s) 1 ended", "RanksEnded", (1,))
    heard = CallRecord(2, 1, "all_reduce", True, "rank 0 failed", "GroupFailed")
    for record in (noticed, heard):
        notices = Notices(keys, record.rank, 3)
        assert notices.declare(record).ended in ((1,), [1])
        # Nor does a process that ends wait until that one has looked.
        assert woken == {"of 0": True, "of 1": False, "of 2": True}
        woken.clear()
    start = time.monotonic()
    assert Notices(keys, 2, 3).records(LIMIT_S).keys() == {0, 2}
    assert time.monotonic() - start < LIMIT_S / 2
