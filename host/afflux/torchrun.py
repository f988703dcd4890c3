"""Runs a module of ours as the ranks of one host, under torchrun, and leaves nothing behind."""

import codecs
import collections
import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from afflux.group.settings.variables import READ_ELSEWHERE
from afflux.processes import end_processes

__all__ = ["RanksFailed", "end_with_parent", "run_module"]

_LAST_LINES = 400
_SHOWN_LINES = 60
_PATIENCE_S = 15.0
"""With a launcher that is to end, which ends its ranks first."""
_PR_SET_PDEATHSIG = 1

QUIET_S = 2400.0
"""Longer than torch's timeout of a group, half an hour: ranks that wait for one another have ended
with their own errors before, which say more."""

_GLANCE_S = 1.0
_READ_BYTES = 1 << 16
_LAST_WORDS_S = 5.0
"""After its launcher's end, what a process that still has the pipe open may say."""


class RanksFailed(RuntimeError):
    """A rank failed; the message holds the end of what the ranks printed."""


def end_with_parent() -> None:
    """Make this rank die with torchrun, even if that is killed hard (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run_module(
    module: str,
    ranks: int,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], bool] = lambda _: False,
    launcher: Sequence[str] | None = None,
    quiet_s: float = QUIET_S,
) -> tuple[list[Any], dict[str, bytes]]:
    """Run `module` with `--folder <folder>` and `arguments`, one process for each rank.

    Of the caller's AFFLUX_ variables only those about the simulation's builds are passed on: the
    arguments alone decide what runs.

    Args:
        module: To run; each rank writes `rank<r>.json` into the folder, and maybe other files.
        ranks: Processes.
        arguments: Command-line arguments of each rank.
        environment: Variables in addition to the caller's.
        on_line: Called with each line that ranks print; returns True if it has dealt with it.
        launcher: The command that starts the ranks instead of torchrun, up to the program's name.
        quiet_s: How long the ranks may print nothing.

    Returns: The ranks' output, by rank, and the other files of the folder by name.

    Raises:
        RanksFailed: torchrun, or the launcher, ended with an error; or nothing was heard of them.
    """
    variables = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("AFFLUX_") or key in READ_ELSEWHERE
    }
    variables |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **environment}
    if launcher:
        command = [*launcher, sys.executable, "-m", module]
    else:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(ranks), "--module", module]
    with tempfile.TemporaryDirectory(prefix="afflux-") as folder:
        # In a session of its own: Ctrl-C reaches the caller alone, which ends the ranks in order.
        process = subprocess.Popen(
            [*command, "--folder", folder, *arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _follow(process, on_line, launcher[0] if launcher else "torchrun", quiet_s)
        finally:
            end_processes([process], patience_s=_PATIENCE_S, with_groups=launcher is not None)
        texts = {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}
    written = [json.loads(texts.pop(f"rank{rank}.json")) for rank in range(ranks)]
    return written, texts


def _follow(
    process: "subprocess.Popen[bytes]", on_line: Callable[[str], bool], what: str, quiet_s: float
) -> None:
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    try:
        for line in _lines_of(process, quiet_s):
            if not on_line(line):
                last.append(line)
        status = process.wait(quiet_s)
    except (TimeoutError, subprocess.TimeoutExpired):
        said = _ranks_part(list(last))
        raise RanksFailed(
            f"timed out: the ranks of {what} have printed nothing for {quiet_s:g} s\n{said}"
        ) from None
    if status != 0:
        raise RanksFailed(f"{what} ended with status {status}\n{_ranks_part(list(last))}")


def _lines_of(process: "subprocess.Popen[bytes]", quiet_s: float) -> Iterator[str]:
    """Yield the lines that a process and its own print, until the last of them has ended.

    Raises:
        TimeoutError: Nothing has come for `quiet_s`.
    """
    assert process.stdout is not None
    output = process.stdout.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    heard = time.monotonic()
    with selectors.DefaultSelector() as arrivals:
        arrivals.register(output, selectors.EVENT_READ)
        while True:
            if not arrivals.select(min(_GLANCE_S, quiet_s)):
                silent_s = time.monotonic() - heard
                if process.poll() is not None and silent_s >= _LAST_WORDS_S:
                    # The pipe's present owner is not a child of ours.
                    break
                if silent_s >= quiet_s:
                    raise TimeoutError
                continue
            data = os.read(output, _READ_BYTES)
            if not data:
                break
            heard = time.monotonic()
            *lines, rest = (rest + decoder.decode(data)).split("\n")
            for line in lines:
                yield line.removesuffix("\r") + "\n"
    if rest:
        yield rest


def _ranks_part(lines: list[str]) -> str:
    """Return what the ranks printed, without torchrun's own account of it."""
    for number, line in enumerate(lines):
        if "failed (exitcode:" in line:
            lines = lines[:number] or lines
            break
    return "".join(lines[-_SHOWN_LINES:])
