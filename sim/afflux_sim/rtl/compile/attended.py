"""Programs that end with the process that has asked for them, and all that they have started.

A compiler is a driver that starts others. If its caller is killed, all of them would go on, for
nobody. So they run under an attendant, this file as a program: it leads a process group of theirs,
the kernel (Linux) tells it of its caller's end, and it ends the group. Nor does Ctrl-C reach them
except through the caller, which ends them in order.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["end_attended", "run_attended"]

_PR_SET_PDEATHSIG = 1

_running: set[int] = set()
_lock = threading.Lock()


def run_attended(
    command: Sequence[str],
    *,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end, as `subprocess.run`; nothing of it outlives this process.

    Args:
        command: A program and its arguments.
        stdout: As for `subprocess.Popen`.
        stderr: As for `subprocess.Popen`.
        environment: The program's; None for this process's own.
        limit_s: After so many seconds it is ended, with all that it has started.

    Raises:
        subprocess.TimeoutExpired: It has been ended at its limit.
        FileNotFoundError: There is no such program.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    whole = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]
    with subprocess.Popen(
        whole,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        start_new_session=True,
    ) as attendant:
        with _lock:
            _running.add(attendant.pid)
        try:
            out, err = attendant.communicate(timeout=limit_s)
        except BaseException:
            _end_group(attendant.pid)
            raise
        finally:
            with _lock:
                _running.discard(attendant.pid)
    return subprocess.CompletedProcess(list(command), attendant.returncode, out, err)


def end_attended() -> None:
    """End all that threads of this process still run, when the process is about to end itself."""
    with _lock:
        # One may have ended just now; its number is not given to another so soon.
        for attendant in _running:
            _end_group(attendant)


def _end_group(attendant: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(attendant, signal.SIGKILL)


def _end_all(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


def _attend(caller: int, command: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, _end_all)
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            # Of the thread that has started this one, which waits for it.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != caller:
        # It has ended before it was asked for.
        _end_all()
    status = subprocess.call(command)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(_attend(int(sys.argv[1]), sys.argv[2:]))
