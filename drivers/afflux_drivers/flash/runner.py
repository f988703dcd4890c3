"""Carries out what loading a board takes: programs with a time limit, and writes that are shown.

In a dry run everything is shown and nothing is done. Otherwise, that nobody can see what is shown,
as when the reader of the output has ended, stops nothing: half a bitstream is worse than no words
about it.
"""

import codecs
import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from afflux_drivers.flash.errors import FlashFailed
from afflux_hdl.progress_line import ProgressLine

__all__ = ["Runner"]

_KEPT_BYTES = 64 << 10
_LAST_LINES = 12
_LINE_LETTERS = 4096
_END_S = 5.0
_LOOK_EVERY_S = 0.2
_PAUSE_S = 0.01


def _print(text: str, end: str = "\n") -> None:
    try:
        print(text, end=end, flush=True)
    except UnicodeEncodeError:
        # The name of a file, say, has what this terminal has no letters for: the rest counts.
        encoding = sys.stdout.encoding
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        print(text, end=end, flush=True)


class Runner:
    """Runs programs and shows what it does.

    Args:
        dry: Show only.
        say: Gets each line that is shown.

    Attributes:
        dry: As given.
        locks: Open files that programs inherit: a lock lasts for as long as one of them runs, even
            if this process is killed.
    """

    def __init__(self, *, dry: bool = False, say: Callable[[str], None] = _print) -> None:
        self.dry, self._show = dry, say
        self.locks: list[int] = []

    def say(self, text: str) -> None:
        """Show a line, if that is possible.

        Raises:
            OSError: It is not, in a dry run, which is for nothing else.
        """
        if self.dry:
            self._show(text)
        else:
            _try_to(self._show, text)

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
            shown: Show what it prints, line by line. Of one that is not, nothing is at stake.

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
        harm = (
            ". The flash may be half written: load the board again before it is switched off"
            if shown
            else ""
        )
        process = self._start(command, program)
        try:
            with _shown(program) if shown else contextlib.nullcontext(_ignore) as take:
                text, status = self._follow(process, limit_s, take)
        except subprocess.TimeoutExpired:
            raise FlashFailed(
                f"{program} was not over after {limit_s:g} s, and was ended{harm}"
            ) from None
        except BaseException:
            self.say(f"({program} is ended{harm})")
            raise
        finally:
            _end(process)
        if status:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            last = "\n".join(text.strip().splitlines()[-_LAST_LINES:])
            raise FlashFailed(f"{program} failed ({how}):\n{last}".rstrip())
        return text

    def _start(self, command: Sequence[str], program: str) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=self.locks,
                # So that a signal to this process lets it clean up first, and its children with it.
                start_new_session=True,
            )
        except OSError as error:
            raise FlashFailed(f"cannot start {program}: {error.strerror}") from None

    def _follow(
        self, process: "subprocess.Popen[bytes]", limit_s: float, take: Callable[[bytes], None]
    ) -> tuple[str, int]:
        """Return what a program has printed, and its status; pass on each piece as it comes."""
        assert process.stdout is not None
        output = process.stdout.fileno()
        kept = bytearray()
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            # It may leave its output to a child that lives on, as Vivado does to its hw_server.
            status = process.poll()
            if not select.select([output], [], [], min(left_s, _LOOK_EVERY_S))[0]:
                if status is None:
                    continue
                return kept.decode("utf-8", "replace"), status
            piece = os.read(output, 4096)
            if not piece:
                # A program that closes its output need not end at once.
                return kept.decode("utf-8", "replace"), process.wait(max(_PAUSE_S, left_s))
            kept += piece
            del kept[:-_KEPT_BYTES]
            take(piece)
        raise subprocess.TimeoutExpired(process.args, limit_s)


@contextlib.contextmanager
def _shown(program: str) -> Iterator[Callable[[bytes], None]]:
    """Show what a program prints: its whole lines, and how far it is where there is a terminal."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    with ProgressLine(os.path.basename(program)) as line:

        def take(piece: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + decoder.decode(piece)).split("\n")
            if lines:
                with line.away():
                    for each in lines:
                        _try_to(_print, _bar(each))
            rest = rest[-_LINE_LETTERS:]
            line.tell(_bar(rest))

        try:
            yield take
        finally:
            if last := _bar(rest):
                with line.away():
                    _try_to(_print, last)


def _bar(line: str) -> str:
    """Return what a line looks like in the end: a bar is written again and again over itself."""
    return line.rstrip("\r").rpartition("\r")[2]


def _ignore(_piece: bytes) -> None:
    return None


def _try_to(show: Callable[..., None], *words: str) -> None:
    # Its reader has ended, its disk is full, or it is closed.
    with contextlib.suppress(OSError, ValueError):
        show(*words)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a program and its children, if they still run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + _END_S
        while (running := _runs(process)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        if not running:
            break
    if process.stdout is not None:
        process.stdout.close()


def _runs(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a program, or anything of its group, runs."""
    if process.poll() is None:
        return True
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
