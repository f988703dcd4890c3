"""A line on a terminal that says what goes on, how far it is, and for how many seconds.

It is written over every second, and goes away at the end. In a pipe or a file there is none.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TextIO

__all__ = ["ProgressLine"]

_ERASE = "\r\x1b[K"
_DEFAULT_COLUMNS = 80


class ProgressLine:
    """A line of one piece of work; a context manager that shows it meanwhile.

    Args:
        what: The work.
        stream: The terminal, if it is one; None: standard error.
        every_s: Seconds between renewals.
    """

    def __init__(self, what: str, stream: TextIO | None = None, every_s: float = 1.0) -> None:
        self._what, self._detail = what, ""
        self._stream = sys.stderr if stream is None else stream
        self._every_s = every_s
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._begun_s = 0.0

    def tell(self, detail: str) -> None:
        """Take what the line says from its next renewal on: a step, a count, a share."""
        self._detail = detail

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Take the line away while something else is printed."""
        with self._lock:
            self._write("")
            try:
                yield
            finally:
                self._draw()

    def show(self, text: str) -> None:
        """Print a line to standard output."""
        with self.away():
            print(text, flush=True)

    def __enter__(self) -> "ProgressLine":
        """Show the line, if there is a terminal."""
        # Not there if the process was started without, closed if somebody has closed it.
        with contextlib.suppress(AttributeError, ValueError):
            if self._stream.isatty():
                self._begun_s = time.monotonic()
                self._thread = threading.Thread(target=self._renew, daemon=True)
                self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        places: TracebackType | None,
    ) -> None:
        """Take the line away for good."""
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None

    def _renew(self) -> None:
        while True:
            with self._lock:
                self._draw()
            if self._over.wait(self._every_s):
                break
        with self._lock:
            self._write("")

    def _draw(self) -> None:
        if self._thread is None:
            return
        said = f"{self._what}: {self._detail}" if self._detail else self._what
        seconds = f", {time.monotonic() - self._begun_s:.0f} s"
        said = "".join(each for each in said if each.isprintable())
        self._write(said[: self._columns() - len(seconds) - 1] + seconds)

    def _columns(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            # A terminal that was never told its size has none.
            return os.get_terminal_size(self._stream.fileno()).columns or _DEFAULT_COLUMNS
        return _DEFAULT_COLUMNS

    def _write(self, text: str) -> None:
        if self._thread is None:
            return
        # The work goes on when its terminal is gone, or has no letter for a part of the text.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{_ERASE}{text}")
            self._stream.flush()
