"""A terminal for programs that look whether they have one."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import termios
import time

__all__ = ["Terminal"]

LIMIT_S = 10


class Terminal:
    """A terminal.

    Args:
        columns: How wide it is.

    Attributes:
        stream: Writes to it.
    """

    def __init__(self, columns: int = 80) -> None:
        self._end, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.stream = os.fdopen(far, "w")
        self._text = ""

    def read(self, until: str) -> str:
        """Return all that has come, as soon as it has this text in it."""
        deadline = time.monotonic() + LIMIT_S
        while until not in self._text:
            left_s = max(0, deadline - time.monotonic())
            assert select.select([self._end], [], [], left_s)[0], self._text
            self._text += os.read(self._end, 4096).decode()
        return self._text

    def close(self) -> None:
        """Take it away from those that write to it."""
        os.close(self._end)
        with contextlib.suppress(OSError):
            self.stream.close()
