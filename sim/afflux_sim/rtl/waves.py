"""Which waves a simulated engine writes, and the file that they go to.

    Waves.parse("engine.vcd", "1000:1200")      cycles 1000 to 1199, as VCD

A file belongs to one engine at a time: a second one that names it gets a file of its own beside it,
`engine-2.vcd`.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import re
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self

__all__ = ["FORMATS", "WaveFile", "Waves", "WavesFailed", "end_at_sigterm"]

FORMATS = ("fst", "vcd")
"""The endings of a file's name; FST is much smaller, VCD is text."""

_WINDOW = re.compile(r"([0-9]*):([0-9]*)")
_MOST = (1 << 63) - 1


class WavesFailed(OSError):
    """A wave file cannot be written; the message names it and the reason."""


@dataclass(frozen=True)
class Waves:
    """A wish: the values of all signals in a window of cycles, in a file.

    Attributes:
        path: Of the file, whose name ends with .vcd or .fst.
        first: The first cycle, as the engine's statistics count them.
        end: The cycle before which it ends; None for as long as the engine runs.

    Raises:
        ValueError: The name has another ending, or there is no cycle in the window.
    """

    path: Path
    first: int = 0
    end: int | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS or not self.path.stem:
            raise ValueError(f"waves {str(self.path)!r}: the name must end with .fst or .vcd")
        if not 0 <= self.first < (_MOST if self.end is None else min(self.end, _MOST + 1)):
            raise ValueError(f"waves_window {self.window!r}: there is no cycle in it")

    @classmethod
    def parse(cls, path: str, window: str | None = None) -> Self:
        """Read the name of a file, and FROM:TO, of which either may be empty.

        Raises:
            ValueError: One of them cannot be; the message names it.
        """
        first, end = "", ""
        if window is not None:
            found = _WINDOW.fullmatch(window)
            if found is None or window == ":":
                raise ValueError(
                    f"waves_window {window!r}: it must be FROM:TO, two numbers of cycles"
                )
            first, end = found.groups()
        return cls(Path(path), int(first or 0), int(end) if end else None)

    @property
    def format(self) -> str:
        """One of `FORMATS`."""
        return self.path.suffix[1:].lower()

    @property
    def window(self) -> str | None:
        """The window as `parse` reads it; None without one."""
        if not self.first and self.end is None:
            return None
        return f"{self.first}:{'' if self.end is None else self.end}"

    def check(self) -> None:
        """Find out whether the file can be had, before a model is built for it.

        Raises:
            WavesFailed: It cannot.
        """
        folder = self.path.absolute().parent
        cause = 0
        if not folder.exists():
            cause = errno.ENOENT
        elif not folder.is_dir():
            cause = errno.ENOTDIR
        elif self.path.is_dir():
            cause = errno.EISDIR
        elif not os.access(self.path if self.path.exists() else folder, os.W_OK):
            cause = errno.EACCES
        if cause:
            raise _failed(self.path, cause)


class WaveFile:
    """The file of one engine, which no other one takes until it is closed.

    Args:
        waves: The wish.

    Attributes:
        path: Its absolute path: another than was wished if an engine has that one.

    Raises:
        WavesFailed: It cannot be opened.
    """

    def __init__(self, waves: Waves) -> None:
        wish = waves.path.absolute()
        for number in itertools.count(1):
            self.path = wish if number == 1 else wish.with_stem(f"{wish.stem}-{number}")
            try:
                # Nobody may be at the other end of a pipe; the lock is this descriptor's.
                self._descriptor = os.open(
                    self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666
                )
            except OSError as error:
                raise _failed(self.path, error.errno) from None
            if _is_free(self._descriptor):
                break
            os.close(self._descriptor)

    def close(self) -> None:
        """Let other engines have the file."""
        os.close(self._descriptor)

    def discard(self) -> None:
        """Remove the file: there is no cycle in it, and so nothing that a viewer could open."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)


def _failed(path: Path, number: int | None) -> WavesFailed:
    return WavesFailed(f"waves {path.absolute()}: {os.strerror(number or errno.EIO)}")


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks.
        return True
    return True


def end_at_sigterm() -> None:
    """Let SIGTERM end this process as an exception does, unless it has a way of its own to end.

    Otherwise it would end at once, and what is still to be written of its waves would be lost.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with contextlib.suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _frame: FrameType | None) -> None:
    # A second one ends it at once.
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)
