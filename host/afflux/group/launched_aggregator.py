"""Aggregators that this process launched: for soft:// and rtl://, and a host's shards.

There is one for each URL, address and role, shared by all groups. It ends with the last group, or
with this process, however that ends.
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

__all__ = ["AggregatorNotStarted", "acquire", "release", "runs"]

_SCRIPT = Path(__file__).parents[1] / "commands" / "serve.py"
_READY = re.compile(r"^afflux: \S+ engine on udp://(?P<host>[^:]+):(?P<port>\d+)$")
_END_TIMEOUT_S = 5.0
_SOFT_JOBS = 256


class AggregatorNotStarted(AffluxError):
    """The engine that soft:// or rtl:// names did not start."""


@dataclass
class _Launched:
    process: subprocess.Popen[str]
    address: tuple[str, int]
    users: int
    owner: int


_launched: dict[tuple[AggregatorUrl, str, str], _Launched] = {}
_lock = threading.Lock()


def acquire(url: AggregatorUrl, host: str, timeout_s: float, role: str = "") -> tuple[str, int]:
    """Return the address of the aggregator for `url`, launched if there is none yet.

    Args:
        url: Its scheme is soft or rtl.
        host: Local address that it binds.
        timeout_s: Until it reports that it is ready; rtl:// may have to build its engine first.
        role: Tells apart several for the same URL and address.

    Raises:
        AggregatorNotStarted: It did not start; the message gives the reason.
    """
    key = (url, host, role)
    with _lock:
        running = _launched.get(key)
        if running is not None and (
            running.owner != os.getpid() or running.process.poll() is not None
        ):
            # Inherited across fork, or already dead.
            running = None
        if running is None:
            running = _start(url, host, timeout_s)
            _launched[key] = running
        running.users += 1
        return running.address


def runs(url: AggregatorUrl, host: str, role: str = "") -> bool:
    """Return whether the aggregator that `acquire` has returned still runs."""
    # Without the lock: an operation asks, while another thread may start one.
    running = _launched.get((url, host, role))
    return running is not None and running.process.poll() is None


def release(url: AggregatorUrl, host: str, role: str = "") -> None:
    """Release the aggregator for one user; it ends with the last one."""
    with _lock:
        running = _launched.get((url, host, role))
        if running is None or running.owner != os.getpid():
            return
        running.users -= 1
        if running.users <= 0:
            del _launched[(url, host, role)]
            _end(running.process)


def _start(url: AggregatorUrl, host: str, timeout_s: float) -> _Launched:
    command = [sys.executable, "-P", str(_SCRIPT), "--engine", url.scheme]
    command += ["--host", host, "--port", "0", "--bus-bits", str(url.bus_bits)]
    command += ["--owner", str(os.getpid())]
    if url.scheme == "soft":
        # A job is a few numbers there, and each group takes one.
        command += ["--jobs", str(_SOFT_JOBS)]
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
        raise AggregatorNotStarted(f"{url.scheme}://: {reason}")
    return _Launched(process, (ready["host"], int(ready["port"])), 0, os.getpid())


def _first_line(process: subprocess.Popen[str], timeout_s: float) -> str:
    """Return the first line that it prints, or why it printed none."""
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(
        target=_read_lines, args=(process.stdout, lines), name="afflux-engine-output", daemon=True
    ).start()
    deadline = time.monotonic() + timeout_s
    try:
        line = lines.get(timeout=timeout_s).strip()
    except queue.Empty:
        return f"timed out: the engine was not ready in {timeout_s:g} s (AFFLUX_START_TIMEOUT)"
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
        for each in _launched.values():
            if each.owner == os.getpid():
                _end(each.process)
        _launched.clear()


# Registered at import, hence run after the groups' own, which still need their aggregator.
atexit.register(_end_all)
