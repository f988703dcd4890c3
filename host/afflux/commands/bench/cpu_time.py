"""Processor time of a rank: its own process, and the engine if it has started one."""

import os
import time
from pathlib import Path

__all__ = ["CpuTimer", "process_seconds"]

_TASKS = Path("/proc/self/task")


class CpuTimer:
    """Seconds of processor time, all threads, between `start` and `stop`.

    Child processes are counted because soft:// sums in one; without /proc they are left out.
    Reading their times takes a while, so it is done first and last: call `prepare` before the
    barrier that lines ranks up.
    """

    def __init__(self) -> None:
        self._children_s = 0.0
        self._own_s = 0.0

    def prepare(self) -> None:
        """Note what the children have used so far."""
        self._children_s = _children_seconds()

    def start(self) -> None:
        """Begin; this costs next to nothing."""
        self._own_s = time.process_time()

    def stop(self) -> float:
        """Return the seconds since `start`, and those of the children since `prepare`."""
        own_s = time.process_time() - self._own_s
        return own_s + max(0.0, _children_seconds() - self._children_s)


def _children_seconds() -> float:
    return sum(process_seconds(child) for child in _children())


def _children() -> list[str]:
    found: list[str] = []
    try:
        for task in _TASKS.iterdir():
            found += (task / "children").read_text(encoding="ascii").split()
    except OSError:
        # A thread that ended meanwhile, or a kernel without this file.
        pass
    return found


def process_seconds(pid: str) -> float:
    """Return the processor time of a process' threads so far; 0 if it cannot be read."""
    total_ns = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii")
            total_ns += int(text.split()[0])
    except (OSError, ValueError, IndexError):
        pass
    return total_ns / 1e9
