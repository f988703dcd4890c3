"""Signals that would end this process while a board is loaded: first what was begun is undone."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from afflux_drivers.flash.errors import FlashFailed

__all__ = ["Ended", "Signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Ended(BaseException):
    """A signal has asked this process to end."""


class Signals:
    """Lets signals that would end this process raise an exception instead, once.

    Before `allow`, behind `hold`, and behind that exception they only wait; at the end of the
    `with` block the process gets the first of them, as it would have without all this. Those that
    it ignores, as below nohup, it goes on ignoring. Only the main thread gets signals; in others
    this does nothing.
    """

    def __init__(self) -> None:
        self._held = True
        self._first: int | None = None
        self._before: dict[int, Any] = {}

    def allow(self) -> None:
        """Raise an exception for a signal from now on, or for one that has waited."""
        self._held = False
        if self._first is not None:
            self._held = True
            raise Ended(self._first)

    def hold(self) -> None:
        """Raise nothing from now on."""
        self._held = True

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # None: its handler is not one of Python's, so nobody could put it back.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._first is not None:
            signal.raise_signal(self._first)
            # Its handler may have let us live.
            if isinstance(error, Ended):
                raise FlashFailed(f"ended by signal {self._first}") from None

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._first = number if self._first is None else self._first
        if not self._held:
            self._held = True
            raise Ended(number)
