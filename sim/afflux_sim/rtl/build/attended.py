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
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["run_attended"]

_PR_SET_PDEATHSIG = 1


def run_attended(
    command: Sequence[str],
    *,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end, as `subprocess.run`; nothing of it outlives this process.

    Args:
        command: A program and its arguments.
        stdout: As for `subprocess.Popen`.
        stderr: As for `subprocess.Popen`.
        environment: The program's; None for this process's own.

    Raises:
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
        try:
            out, err = attendant.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(attendant.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(list(command), attendant.returncode, out, err)


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
