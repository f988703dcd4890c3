"""A thread that sums messages, the one first that the next forward pass needs first.

Ranks have their gradients at different times, but must sum the same message at the same time. So
before each message the ranks agree, by the minimum of one flag for each, which messages are ready
at all of them; the one with the highest priority of these is next. Once all are ready at all ranks
nothing needs to be agreed any more. The same small sum compares what has been summed so far.
"""

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
import torch.distributed as dist

from afflux.overlap.plan import Message
from afflux_drivers.errors import AffluxError

__all__ = ["MessagesFailed", "Messenger"]

_log = logging.getLogger("afflux")

_WORD = 0x7FFFFFFF

_JOIN_S = 2.0
"""With the thread, when nobody needs it any more."""


class MessagesFailed(AffluxError):
    """A message could not be summed; the text names it, and what went wrong."""


_open_messengers: "weakref.WeakSet[Messenger]" = weakref.WeakSet()

Finished = Callable[[Message, float, float], None]
"""Gets a message that has been summed, and when that began and ended (`time.monotonic`)."""


class Messenger:
    """Sums the messages of one model, round by round.

    Args:
        messages: By priority; the same at all ranks.
        carry_out: Sums one message, collectively, in the thread.
        group: In which to agree. Nobody else may use it.
        fingerprint: Must be the same at all ranks.
        in_order: Whether priorities count; otherwise messages are taken as they come to be ready.
        finished: Called in the thread after each message, before its end is known.
        timeout_s: Longest that the end of the last round is waited for, when all else is over.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        carry_out: Callable[[Message], None],
        group: dist.ProcessGroup,
        fingerprint: int,
        *,
        in_order: bool = True,
        finished: Finished = lambda *_: None,
        timeout_s: float = 0.0,
    ) -> None:
        self._messages = messages
        self._carry_out = carry_out
        self._group = group
        self._in_order = in_order
        self._finished = finished
        self._timeout_s = timeout_s
        self._history = fingerprint & _WORD
        self._changed = threading.Condition()
        count = len(messages)
        self._ready = torch.zeros(count, dtype=torch.int32)
        self._ready_count = 0
        self._done = [True] * count
        self._left = 0
        self._failure: MessagesFailed | None = None
        self._stopping = False
        self._on_done: dict[int, list[Callable[[BaseException | None], None]]] = {}
        self.agreements = 0
        self.agreeing_s = 0.0
        self._thread = threading.Thread(target=self._run, name="afflux-overlap", daemon=True)
        self._thread.start()
        _open_messengers.add(self)

    @property
    def failure(self) -> MessagesFailed | None:
        """The error that has ended the thread; None if nothing has."""
        return self._failure

    @property
    def busy(self) -> bool:
        """Whether a round is in progress."""
        return self._left > 0

    def begin(self) -> None:
        """Begin a round. The one before must be over.

        Raises:
            MessagesFailed: A message of an earlier round could not be summed.
        """
        with self._changed:
            self._check()
            assert not self._left, "a round is in progress"
            self._ready.zero_()
            self._ready_count = 0
            self._done = [False] * len(self._messages)
            self._left = len(self._messages)
            self._changed.notify_all()

    def ready(self, numbers: Iterable[int]) -> None:
        """Let messages be summed: all that is in them is there.

        Raises:
            MessagesFailed: An earlier message could not be summed.
        """
        with self._changed:
            self._check()
            for number in numbers:
                self._ready[number] = 1
                self._ready_count += 1
            self._changed.notify_all()

    def wait(self, numbers: Iterable[int]) -> None:
        """Wait until messages have been summed.

        Raises:
            MessagesFailed: One could not be.
        """
        wanted = list(numbers)
        with self._changed:
            while not all(self._done[number] for number in wanted):
                self._check()
                if not self._thread.is_alive():
                    raise MessagesFailed("the thread that sums messages has ended")
                self._changed.wait(1.0)
            self._check_failure()

    def when_done(
        self, numbers: Iterable[int], call: Callable[[BaseException | None], None]
    ) -> None:
        """Have `call` called in the thread once all these messages are over, or one has failed."""
        with self._changed:
            if self._failure is not None:
                failed = MessagesFailed(str(self._failure))
            else:
                failed = None
                self._check()
            left = {number for number in numbers if not self._done[number]}

            def one_less(error: BaseException | None, number: int) -> None:
                if not left:
                    return
                left.discard(number)
                if error is not None:
                    left.clear()
                if not left:
                    call(error)

            if failed is None:
                for number in left:
                    self._on_done.setdefault(number, []).append(partial(one_less, number=number))
            over = failed is not None or not left
        if over:
            call(failed)

    def finish(self) -> None:
        """Let a round end that needs nothing more from here: other ranks may still need it."""
        with self._changed:
            if (
                self._left
                and self._ready_count == len(self._messages)
                and not self._stopping
                and threading.current_thread() is not self._thread
                and self._thread.is_alive()
            ):
                over = self._changed.wait_for(
                    lambda: not self._left or self._failure is not None, self._timeout_s
                )
                if not over:
                    _log.warning("messages were still under way after %g s", self._timeout_s)

    def close(self) -> None:
        """End the thread; a round that is ready here ends first, and a message has two seconds."""
        self.finish()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_S)

    def _forked(self) -> None:
        """Go on in a forked process, where there is no thread, and the lock may never be free."""
        self._changed = threading.Condition()

    def _check(self) -> None:
        self._check_failure()
        if self._stopping:
            raise MessagesFailed("it has been closed")

    def _check_failure(self) -> None:
        if self._failure is not None:
            # Each caller gets an error of his own: a raised one collects tracebacks.
            raise MessagesFailed(str(self._failure)) from self._failure.__cause__

    def _run(self) -> None:
        try:
            while self._round():
                pass
        except BaseException as error:
            self._fail(error, "the messages' order was to be agreed")

    def _round(self) -> bool:
        """Sum the messages of one round; return whether there may be another."""
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._stopping)
            if self._stopping:
                return False
        count = len(self._messages)
        agreed = [False] * count
        arrivals: list[int] = []
        waiting: set[int] = set()
        offered, fruitful = -1, True
        # Not until `_left` is 0: the next round may begin before that is seen.
        while not all(agreed) or waiting:
            if not all(agreed):
                if not waiting and not self._has_more(agreed, offered, fruitful):
                    return False
                offered, new = self._agree(agreed)
                fruitful = bool(new)
                # A backward pass ends with what the forward pass begins with.
                arrivals += new if self._in_order else reversed(new)
                waiting.update(new)
            if waiting:
                number = min(waiting) if self._in_order else arrivals[0]
                arrivals.remove(number)
                waiting.remove(number)
                if not self._sum(self._messages[number]):
                    return False
        return True

    def _has_more(self, agreed: Sequence[bool], offered: int, fruitful: bool) -> bool:
        """Wait until there is something to offer; return whether there will be."""
        known = sum(agreed)

        def more() -> bool:
            ready = self._ready_count
            # Messages that are ready here need not be ready elsewhere: another offer of the same
            # would bring nothing, until all ranks have everything.
            enough = ready > known if fruitful else ready > offered
            return enough or ready == len(agreed) or self._stopping

        with self._changed:
            self._changed.wait_for(more)
            return not self._stopping

    def _agree(self, agreed: list[bool]) -> tuple[int, list[int]]:
        """Learn what is ready at all ranks.

        Returns:
            How many messages this rank has offered, and the numbers of those that are new.
        """
        started = time.monotonic()
        with self._changed:
            offered = self._ready_count
            flags = torch.cat([self._ready, torch.tensor([self._history, -self._history])])
        flags = flags.to(torch.int32)
        dist.all_reduce(flags, op=dist.ReduceOp.MIN, group=self._group)
        values = flags.tolist()
        if values[-2] != self._history or values[-1] != -self._history:
            raise MessagesFailed("the ranks have not summed the same messages in the same order")
        new = [number for number, flag in enumerate(values[:-2]) if flag and not agreed[number]]
        for number in new:
            agreed[number] = True
        self.agreements += 1
        self.agreeing_s += time.monotonic() - started
        return offered, new

    def _sum(self, message: Message) -> bool:
        started = time.monotonic()
        try:
            self._carry_out(message)
            self._finished(message, started, time.monotonic())
        except BaseException as error:
            self._fail(error, f"{message.text} ({message.bytes} bytes) was to be summed")
            return False
        self._history = (self._history * 31 + message.number + 1) & _WORD
        with self._changed:
            self._done[message.number] = True
            calls = self._on_done.pop(message.number, ())
            self._left -= 1
            self._changed.notify_all()
        for call in calls:
            call(None)
        return True

    def _fail(self, error: BaseException, when: str) -> None:
        failure = MessagesFailed(f"while {when}: {type(error).__name__}: {error}")
        failure.__cause__ = error.with_traceback(None)
        with self._changed:
            self._failure = failure
            calls = [call for each in self._on_done.values() for call in each]
            self._on_done.clear()
            self._changed.notify_all()
        if not self._stopping:
            _log.error("%s", failure)
        for call in calls:
            with contextlib.suppress(Exception):
                call(failure)


def _go_on_in_child() -> None:
    for each in list(_open_messengers):
        each._forked()


os.register_at_fork(after_in_child=_go_on_in_child)
