"""Aggregators that this process launched: for soft://, rtl:// and board://.

There is one for each URL and address, shared by all groups. It ends with the last group, or
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers.control.secret import new_secret
from afflux_drivers.errors import AffluxError

__all__ = ["AggregatorNotStarted", "Launched", "acquire", "release"]

_SCRIPT = Path(__file__).parents[2] / "commands" / "serve.py"
_READY = re.compile(r"^afflux: \S+ engine on udp://\[?(?P<host>.+?)\]?:(?P<port>\d+)$")
_END_TIMEOUT_S = 5.0
_SOFT_JOBS = 256


class AggregatorNotStarted(AffluxError):
    """The engine that soft://, rtl:// or board:// names did not start."""


_Key = tuple[AggregatorUrl, str]


@dataclass(eq=False)
class Launched:
    """An aggregator that this process has launched, for those who have acquired it.

    Attributes:
        process: It runs there.
        address: Where it listens.
        secret: Of its control channel: random, made here.
    """

    process: subprocess.Popen[str]
    address: tuple[str, int]
    users: int
    owner: int
    secret: str = field(repr=False)

    def runs(self) -> bool:
        """Return whether it still runs."""
        return self.process.poll() is None


_launched: dict[_Key, Launched] = {}


class _Own:
    def __init__(self) -> None:
        self.lock = threading.Lock()


_own = _Own()


def acquire(url: AggregatorUrl, host: str, timeout_s: float) -> Launched:
    """Return the aggregator for `url`, launched if there is none yet, or if the last one has ended.

    Args:
        url: Its scheme is soft, rtl or board.
        host: Local address that it binds.
        timeout_s: Until it reports that it is ready; a simulated one may have to be built first.

    Raises:
        AggregatorNotStarted: It did not start; the message gives the reason.
    """
    key = (url, host)
    with _own.lock:
        running = _launched.get(key)
        if running is not None and (running.owner != os.getpid() or not running.runs()):
            # Inherited across fork, or already dead.
            running = None
        if running is None:
            running = _start(url, host, timeout_s)
            _launched[key] = running
        running.users += 1
        return running


def release(aggregator: Launched) -> None:
    """Release an aggregator for one user; it ends with the last one."""
    with _own.lock:
        if aggregator.owner != os.getpid():
            return
        aggregator.users -= 1
        if aggregator.users <= 0:
            # Another one may have its place, if it had ended before.
            for key in [key for key, each in _launched.items() if each is aggregator]:
                del _launched[key]
            _end(aggregator.process)


def _start(url: AggregatorUrl, host: str, timeout_s: float) -> Launched:
    command = [sys.executable, "-P", str(_SCRIPT), url.scheme, "--host", host, "--port", "0"]
    # All its clients are ranks of groups that this process is in.
    command += ["--owner", str(os.getpid()), "--peer-share", "1"]
    if url.scheme == "soft":
        # A job is a few numbers there, and each group takes one.
        command += ["--jobs", str(_SOFT_JOBS)]
    if url.scheme == "rtl":
        command += ["--bus-bits", str(url.bus_bits)]
    if url.group:
        command += ["--group", str(url.group)]
    if url.waves:
        command += ["--waves", str(url.waves.path)]
        command += ["--waves-window", url.waves.window] if url.waves.window else []
    if threading.current_thread() is threading.main_thread():
        command.append("--owner-signal")
    # In its environment, which only its user can read; anybody can read its arguments.
    environment = {key: text for key, text in os.environ.items() if key != "AFFLUX_SECRET_FILE"}
    environment["AFFLUX_SECRET"] = secret = new_secret()
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    line = _first_line(process, timeout_s)
    ready = _READY.match(line)
    if ready is None:
        _end(process)
        reason = line.removeprefix("afflux: cannot serve: ")
        raise AggregatorNotStarted(f"{url.scheme}://: {reason}")
    return Launched(process, (ready["host"], int(ready["port"])), 0, os.getpid(), secret)


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
    with _own.lock:
        for each in _launched.values():
            if each.owner == os.getpid():
                _end(each.process)
        _launched.clear()


# Another thread may have had the lock when this process was forked.
os.register_at_fork(after_in_child=_own.__init__)  # type: ignore[misc]

# Registered at import, hence run after the groups' own, which still need their aggregator.
atexit.register(_end_all)
