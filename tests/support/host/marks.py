"""A file by which ranks say that they have begun: a test acts then, however slow the machine is."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["act_when"]

_LIMIT_S = 60.0


def act_when(mark: Path, action: Callable[[], object], after_s: float = 1.0) -> threading.Thread:
    """Start a thread that acts when a file is there, and so long has passed; return it."""

    def wait() -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(after_s)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread
