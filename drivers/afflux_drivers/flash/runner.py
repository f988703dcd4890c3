"""Carries out what loading a board takes: programs with a time limit, and writes that are shown.

In a dry run everything is shown and nothing is done.
"""

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from afflux_drivers.flash.errors import FlashFailed

__all__ = ["Runner"]

_KEPT_BYTES = 64 << 10
_LAST_LINES = 12
_END_S = 5.0


def _print(text: str) -> None:
    print(text, flush=True)


class Runner:
    """Runs programs and shows what it does.

    Args:
        dry: Show only.
        say: Gets each line that is shown.

    Attributes:
        dry: As given.
    """

    def __init__(self, *, dry: bool = False, say: Callable[[str], None] = _print) -> None:
        self.dry, self.say = dry, say

    def do(self, what: str, act: Callable[[], object]) -> None:
        """Show what is done, and do it."""
        self.say(f"+ {what}")
        if not self.dry:
            act()

    def run(
        self,
        command: Sequence[str],
        *,
        limit_s: float,
        environment: Mapping[str, str] | None = None,
        shown: bool = True,
    ) -> str:
        """Run a program to its end; return what it has printed, or nothing in a dry run.

        Args:
            command: The program and its arguments.
            limit_s: Seconds until it is ended.
            environment: Variables beside those of this process.
            shown: Show what it prints, as it comes.

        Raises:
            FlashFailed: It cannot be started, fails, or is not over in time; the message has the
                end of what it printed.
        """
        program = command[0]
        if environment:
            command = ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
        self.say(f"+ {shlex.join(command)}")
        if self.dry:
            return ""
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # So that a signal to this process lets it clean up first, and its children with it.
                start_new_session=True,
            )
        except OSError as error:
            raise FlashFailed(f"cannot start {program}: {error.strerror}") from None
        try:
            text = self._follow(process, limit_s, shown)
            status = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise FlashFailed(
                f"{program} was not over after {limit_s:g} s, and was ended. What it was "
                "writing may be half written: load the board again before it is switched off"
            ) from None
        finally:
            _end(process)
        if status:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            last = "\n".join(text.strip().splitlines()[-_LAST_LINES:])
            raise FlashFailed(f"{program} failed ({how}):\n{last}".rstrip())
        return text

    def _follow(self, process: "subprocess.Popen[bytes]", limit_s: float, shown: bool) -> str:
        assert process.stdout is not None
        output = process.stdout.fileno()
        kept = bytearray()
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            if not select.select([output], [], [], left_s)[0]:
                continue
            piece = os.read(output, 4096)
            if not piece:
                return kept.decode("utf-8", "replace")
            kept += piece
            del kept[:-_KEPT_BYTES]
            if shown:
                sys.stdout.write(piece.decode("utf-8", "replace"))
                sys.stdout.flush()
        raise subprocess.TimeoutExpired(process.args, limit_s)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a program, and what it has started, if they still run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    if process.stdout is not None:
        process.stdout.close()
