"""The keys of the processes of groups that have been left, step by step."""

import os
import signal
import threading
import time
import types
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore, TCPStore

from afflux.adapters import native
from afflux.group.store import watch
from afflux.group.store.bounded import Asker, BoundedStore
from afflux.group.store.watch import StoreWatch, forget_left, note_left
from tests.support.forking import context

LIMIT_S = 20.0


class Listed:
    """A store that can be listed, as a TCPStore can, and that counts how often it is."""

    def __init__(self) -> None:
        self.own = HashStore()
        self.names: list[str] = []
        self.lists = 0
        self.stopping = threading.Event()
        self.stop_after = -1

    def write(self, *names: str) -> None:
        for name in names:
            self.set(name, "")

    def set(self, name: str, value: str) -> None:
        self.names.append(name)
        self.own.set(name, value)

    def check(self, names: list[str]) -> bool:
        return self.own.check(names)

    def compare_set(self, name: str, expected: str, desired: str) -> bytes:
        self.names.append(name)
        return self.own.compare_set(name, expected, desired)

    def list_keys(self) -> list[str]:
        self.lists += 1
        return self.left()

    def delete_key(self, name: str) -> bool:
        self.stop_after -= 1
        if self.stop_after == 0:
            self.stopping.set()
        return self.own.delete_key(name)

    def left(self) -> list[str]:
        return sorted(name for name in set(self.names) if self.own.check([name]))


LIST_KEYS: Any = Listed.list_keys


def groups(rank: int) -> list[watch._Left]:
    return [watch._Left(f"afflux/{incarnation}", rank, 2) for incarnation in "abc"]


def test_the_keys_of_several_groups_are_listed_once():
    store = Listed()
    store.write("afflux/a/x", "afflux/b/x", "afflux/c/x", "afflux/d/x")
    assert watch._forget(store, groups(0), store.stopping, LIST_KEYS) == []
    assert store.lists == 0
    assert watch._forget(store, groups(1), store.stopping, LIST_KEYS) == []
    assert store.lists == 1
    assert store.left() == ["afflux/d/x"]


def test_one_of_two_that_find_that_all_have_left_deletes():
    store = Listed()
    store.write("afflux/a/left/0", "afflux/a/left/1")
    of_both = [watch._is_ours(store, groups(rank)[0]) for rank in (1, 0)]
    assert of_both == [True, False]


def test_who_stops_goes_on_with_the_next_group():
    store = Listed()
    store.write("afflux/a/x", "afflux/b/x", "afflux/c/x", "afflux/d/x")
    watch._forget(store, groups(0), store.stopping, LIST_KEYS)
    store.stop_after = 4
    more = watch._forget(store, groups(1), store.stopping, LIST_KEYS)
    assert len(store.left()) > 1
    store.stopping.clear()
    assert watch._forget(store, more, store.stopping, LIST_KEYS) == []
    assert store.left() == ["afflux/d/x"]


def test_notices_do_not_wait_until_all_is_deleted():
    listing, go_on = threading.Event(), threading.Event()
    store = HashStore()

    def list_keys(_store):
        listing.set()
        go_on.wait(LIMIT_S)
        return []

    slow: Any = types.SimpleNamespace(
        set=store.set, check=store.check, compare_set=store.compare_set
    )
    slow.clone = lambda: slow
    watch: Any = types.SimpleNamespace(
        key="a store",
        wake_key="wake",
        connection=slow,
        stopping=threading.Event(),
        tidying=None,
        tidied=None,
        asked=BoundedStore(slow, Asker()),
    )
    note_left(watch, "afflux/a", 0, 1)
    forget_left(watch, list_keys)
    assert listing.wait(LIMIT_S)
    try:
        watch.asked.set("notice", "1")
        assert store.check(["notice"])
    finally:
        go_on.set()


def serve(port):
    """Serve a store until the process is killed."""
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    port.send(store.port)
    time.sleep(10 * LIMIT_S)


def wake(pid):
    """Let a process that is stopped go on after a while. Not from one whose threads all wait."""
    time.sleep(0.6)
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("own", "held_up"), [(False, False), (True, True)])
def test_a_store_that_does_not_answer_holds_up_only_who_lists_it(own, held_up):
    """Not this thread; torch's own way to list keys does."""
    receiver, sender = context.Pipe(duplex=False)
    server = context.Process(target=serve, args=(sender,))
    server.start()
    assert server.pid is not None
    waker = context.Process(target=wake, args=(server.pid,))
    try:
        store = TCPStore("127.0.0.1", receiver.recv(), is_master=False)
        store.set("a", "1")
        list_keys = TCPStore.list_keys if own else native.load().list_keys
        found: list[list[str]] = []
        lists = threading.Thread(target=lambda: found.append(list_keys(store)))
        os.kill(server.pid, signal.SIGSTOP)
        waker.start()
        last, longest = time.monotonic(), 0.0
        lists.start()
        while lists.is_alive():
            time.sleep(0.01)
            now = time.monotonic()
            last, longest = now, max(longest, now - last)
        assert found == [["a"]]
        assert (longest > 0.3) == held_up
    finally:
        server.kill()
        for each in (server, waker):
            each.join()


def test_ranks_that_wake_one_another_and_end_do_not_wait_for_one_another(monkeypatch):
    """As after a failure, of which each tells all: it may be told after it has heard."""
    monkeypatch.setattr(watch, "_HEARD_S", LIMIT_S)
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    heard = threading.Event()
    first, second = (
        StoreWatch(TCPStore("127.0.0.1", server.port, is_master=False), LIMIT_S) for _ in range(2)
    )
    second.add("group", heard.set)
    server.set("group/notice", "1")
    first.wake(second.wake_key)
    assert heard.wait(LIMIT_S)
    second.wake(first.wake_key)
    first.wake(second.wake_key)
    start = time.monotonic()
    second.wake("of a rank that has died", lives=False)
    # One after the other: the second to end finds that the first has.
    ends = threading.Thread(target=first.stop)
    ends.start()
    second.stop()
    ends.join()
    assert time.monotonic() - start < LIMIT_S / 2
