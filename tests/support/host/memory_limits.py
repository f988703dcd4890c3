"""Control groups of the kernel that hold processes to some memory, as a container's limit does."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["join", "memory_limit"]

_ROOT = Path("/sys/fs/cgroup")

_LIMITS = {
    "memory.max": "memory.swap.max",
    "memory.limit_in_bytes": "memory.memsw.limit_in_bytes",
}
"""Of version 2 and 1: what limits memory, and what keeps the rest from being swapped out."""


@contextmanager
def memory_limit(limit: int) -> Iterator[Path]:
    """Yield a new group below this process's own, without a process yet; skip if none can be made.

    Args:
        limit: Bytes that its processes may touch for the first time.
    """
    group = _parent() / f"afflux-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        name = next((name for name in _LIMITS if (group / name).exists()), None)
        if name is None:
            pytest.skip("control groups here do not limit memory")
        try:
            (group / name).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"no memory limit can be set here: {error}")
        swap = group / _LIMITS[name]
        if swap.exists():
            # Version 1 counts memory and swap together, version 2 swap alone.
            swap.write_text(str(limit) if "memsw" in swap.name else "0")
        yield group
    finally:
        _remove(group)


def join(group: Path) -> None:
    """Put this process into a group. Memory that it has touched before is not counted."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _parent() -> Path:
    places: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        places |= {controller: path.lstrip("/") for controller in controllers.split(",")}
    if "memory" in places:
        own = _ROOT / "memory" / places["memory"]
        # In a container the path may be the host's.
        return own if own.exists() else _ROOT / "memory"
    # Version 2: groups below one that has processes get no controllers, but for the root's.
    above = _ROOT / places.get("", "")
    while above != _ROOT and not _hands_on_memory(above):
        above = above.parent
    return above


def _hands_on_memory(group: Path) -> bool:
    try:
        return "memory" in (group / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False


def _remove(group: Path) -> None:
    deadline = time.monotonic() + 5.0
    while True:
        try:
            group.rmdir()
        except OSError:
            # A process that has ended leaves it a moment later.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
