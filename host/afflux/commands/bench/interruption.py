"""Handles SIGTERM like Ctrl-C, so that a stopped command ends the ranks that it has started."""

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["terminated_as_interrupted"]


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM raise `KeyboardInterrupt` within the block. Main thread only."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
