"""Aggregators that this process started for soft:// and rtl://.

There is one for each URL and address, whatever the number of groups; it ends with the last group,
or with this process, however that ends.
"""

import atexit
import os
import queue
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from afflux.group.aggregator_url import AggregatorUrl
from afflux_drivers.errors import AffluxError

__all__ = ["ChildFailed", "acquire", "release"]

_SCRIPT = Path(__file__).parents[1] / "commands" / "serve.py"
_READY = re.compile(r"^afflux: \S+ engine on udp://(?P<host>[^:]+):(?P<port>\d+)$")
_END_TIMEOUT_S = 5.0


class ChildFailed(AffluxError):
    """The engine that soft:// or rtl:// names did not start."""


@dataclass
class _Child:
    process: subprocess.Popen[str]
    address: tuple[str, int]
    users: int
    owner: int


_children: dict[tuple[AggregatorUrl, str], _Child] = {}
_lock = threading.Lock()


def acquire(url: AggregatorUrl, host: str, timeout_s: float) -> tuple[str, int]:
    """Address of the aggregator for `url`, started if there is none yet.

    Args:
        url: An embedded one.
        host: Local address to bind.
        timeout_s: For it to say that it is ready; rtl:// may have to build its engine first.

    Raises:
        ChildFailed: It did not start; the message has its reason.
    """
    key = (url, host)
    with _lock:
        child = _children.get(key)
        if child is not None and (child.owner != os.getpid() or child.process.poll() is not None):
            # Of the process that forked this one, or dead.
            child = None
        if child is None:
            child = _start(url, host, timeout_s)
            _children[key] = child
        child.users += 1
        return child.address


def release(url: AggregatorUrl, host: str) -> None:
    """One user less; the last one ends the aggregator."""
    with _lock:
        child = _children.get((url, host))
        if child is None or child.owner != os.getpid():
            return
        child.users -= 1
        if child.users <= 0:
            del _children[(url, host)]
            _end(child.process)


def _start(url: AggregatorUrl, host: str, timeout_s: float) -> _Child:
    command = [sys.executable, "-P", str(_SCRIPT), "--engine", url.scheme]
    command += ["--host", host, "--port", "0", "--bus-bits", str(url.bus_bits)]
    command += ["--owner", str(os.getpid())]
    if url.group:
        command += ["--group", str(url.group)]
    if threading.current_thread() is threading.main_thread():
        command.append("--owner-signal")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    line = _first_line(process, timeout_s)
    ready = _READY.match(line)
    if ready is None:
        _end(process)
        reason = line.removeprefix("afflux: cannot serve: ")
        raise ChildFailed(f"{url.scheme}://: {reason}")
    return _Child(process, (ready["host"], int(ready["port"])), 0, os.getpid())


def _first_line(process: subprocess.Popen[str], timeout_s: float) -> str:
    """What it says first, or why it said nothing."""
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(
        target=_read_lines, args=(process.stdout, lines), name="afflux-child", daemon=True
    ).start()
    deadline = time.monotonic() + timeout_s
    try:
        line = lines.get(timeout=timeout_s).strip()
    except queue.Empty:
        return f"the engine was not ready within {timeout_s:g} s (AFFLUX_START_TIMEOUT)"
    if line:
        return line
    try:
        status = process.wait(max(0.1, min(5.0, deadline - time.monotonic())))
    except subprocess.TimeoutExpired:
        return "the engine closed its output"
    return f"the engine ended with status {status} before it was ready"


def _read_lines(stream: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    lines.put(stream.readline())
    # Nothing more is expected; reading on keeps the pipe from filling.
    for _ in stream:
        pass


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_all() -> None:
    with _lock:
        for child in _children.values():
            if child.owner == os.getpid():
                _end(child.process)
        _children.clear()


# Registered at import, hence run after the groups' own, which still need their aggregator.
atexit.register(_end_all)
