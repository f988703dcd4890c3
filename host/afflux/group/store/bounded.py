"""A store whose calls all end in time.

torch's own do not: once a TCPStore's call has been sent it waits for the answer without a limit. If
the store's host is stopped, or gone without a word, whoever asks is held up, whatever its deadline,
and does not even heed Ctrl-C. So a thread asks, and the caller waits for its answer, for a time.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

__all__ = ["Asker", "BoundedStore", "StoreSilent", "innermost"]

_T = TypeVar("_T")

_BRIEF_S = 2.0
"""For calls without a deadline of their own. A store that is well answers in a millisecond."""

_LEAST_S = 0.5
"""A deadline that has come leaves so long for a last look."""

_ABSENT = "afflux: no such key"
"""No key has this value."""


class StoreSilent(RuntimeError):
    """A store does not answer; the message names it. Other errors of stores are of this kind."""


def innermost(store: Store) -> Store:
    """Return what a store is without its prefixes."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def _named(store: Store) -> str:
    root = innermost(store)
    return f"the store at {root.host}:{root.port}" if isinstance(root, TCPStore) else "the store"


def _found(store: Store, key: str) -> bytes | None:
    """Return the value of a key, or None if it is not there. Another rank may delete it any moment.

    A key that is deleted after a check would keep `get` waiting, and with it the connection.
    """
    try:
        # Nothing is written: it has not this value. A key that is not there keeps so.
        value = store.compare_set(key, _ABSENT, _ABSENT)
    except NotImplementedError:
        return store.get(key) if store.check([key]) else None
    return None if value == _ABSENT.encode() else value


class _Question:
    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._answered = threading.Lock()
        self._answered.acquire()
        self._answer: Any = None
        self._error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:
            # Its frames hold this question.
            self._error = error.with_traceback(None)
        self._answered.release()

    def answered(self, limit_s: float) -> bool:
        return self._answered.acquire(timeout=limit_s)

    def answer(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._answer


class Asker:
    """The thread that asks a store, of one connection. There is one only while it is needed.

    Any thread may use it, and a signal handler in the middle of another call.

    Args:
        idle_s: The thread ends when nothing has been asked for so long.

    Attributes:
        silent: Whether somebody has waited in vain for an answer, and none has come since.
    """

    def __init__(self, idle_s: float = 1.0) -> None:
        self.silent = False
        self._idle_s = idle_s
        self._questions: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def ask(self, call: Callable[[], _T], limit_s: float, store: Store) -> _T:
        """Return what `call` returns, in the thread.

        Args:
            call: Asks the store.
            limit_s: How long to wait. A request that has not been answered by then is still carried
                out, when the store answers again.
            store: For the message.

        Raises:
            StoreSilent: It has not returned in time.
        """
        question = _Question(call)
        self._put(question)
        if not question.answered(limit_s):
            self.silent = True
            if not question.answered(0):
                raise StoreSilent(f"{_named(store)} has not answered for {limit_s:.3g} s")
            self.silent = False
        answer: _T = question.answer()
        return answer

    def end(self) -> None:
        """End the thread when it has asked what it was to ask; wait for that if the store is well.

        A later request starts a new one.
        """
        with self._lock:
            thread = self._thread
            if thread is None:
                return
            self._put(_Question(self._let_go))
        if thread is not threading.current_thread() and not self.silent:
            thread.join(_LEAST_S)

    def _let_go(self) -> None:
        with self._lock:
            if self._questions.empty() and self._thread is threading.current_thread():
                self._thread = None

    def later(self, call: Callable[[], Any]) -> None:
        """Let the thread carry out what nobody waits for; its errors are lost."""
        self._put(_Question(call))

    def _put(self, question: _Question) -> None:
        with self._lock:
            self._questions.put(question)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="afflux-store", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:
                    # The interpreter is ending, and starts no more threads.
                    self._thread = None
                    while not self._questions.empty():
                        self._questions.get().carry_out()

    def _run(self) -> None:
        # Of two threads, when a signal handler has come in the midst of a start, one ends.
        while self._thread is threading.current_thread():
            try:
                question = self._questions.get(timeout=self._idle_s)
            except queue.Empty:
                with self._lock:
                    if self._questions.empty() and self._thread is threading.current_thread():
                        self._thread = None
                continue
            question.carry_out()
            self.silent = False
            # It may hold much, and the next one may be long in coming.
            del question


class BoundedStore:
    """Calls of a store, with the names and arguments of torch's, which end in time.

    Without a deadline a call has two seconds; and none if the store has been silent lately: then
    values are left to be written later, and everything else is not even asked.

    Args:
        store: torch's, whose calls return at once if it is well.
        asker: Of its connection; None for one of its own.
        deadline: When calls must have ended, in seconds of the monotonic clock.
    """

    def __init__(
        self, store: Store, asker: Asker | None = None, deadline: float | None = None
    ) -> None:
        self._store = store
        self._asker = asker if asker is not None else Asker()
        self._deadline = deadline

    def until(self, deadline: float) -> "BoundedStore":
        """Return the same store for calls that have until then, or a moment if that is past."""
        return BoundedStore(self._store, self._asker, deadline)

    def under(self, prefix: str) -> "BoundedStore":
        """Return the keys under a prefix."""
        return BoundedStore(PrefixStore(prefix, self._store), self._asker, self._deadline)

    @property
    def silence(self) -> str:
        """That the store does not answer, in words; empty if it does."""
        return f"{_named(self._store)} does not answer" if self._asker.silent else ""

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there."""
        return self._ask(lambda: self._store.check(keys))

    def get(self, key: str) -> bytes:
        """Return the value of a key that is there."""
        return self._ask(lambda: self._store.get(key))

    def find(self, key: str) -> bytes | None:
        """Return the value of a key, or None if it is not there."""
        return self._ask(lambda: _found(self._store, key))

    def set(self, key: str, value: str) -> None:
        """Write a key."""
        self._ask(lambda: self._store.set(key, value), writes=True)

    def delete_key(self, key: str) -> bool:
        """Delete a key; return whether it was there."""
        return self._ask(lambda: self._store.delete_key(key))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Write a key if it has the expected value; return what it has then."""
        return self._ask(lambda: self._store.compare_set(key, expected, desired), writes=True)

    def _ask(self, call: Callable[[], _T], writes: bool = False) -> _T:
        if self._deadline is not None:
            limit_s = max(self._deadline - time.monotonic(), _LEAST_S)
        elif not self._asker.silent:
            limit_s = _BRIEF_S
        elif writes:
            limit_s = 0.0
        else:
            raise StoreSilent(self.silence)
        return self._asker.ask(call, limit_s, self._store)
