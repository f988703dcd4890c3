"""A process that is an aggregator: it serves until a signal, or its owner's end, stops it."""

import contextlib
import ctypes
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TextIO

from afflux_drivers.aggregator.board import BoardFailed

__all__ = ["log_to_error_output", "serve_until_stopped"]

_READY = "afflux: {server.engine_name} engine on {server.url}"
"""The line on standard output that reports where the aggregator listens."""

_FAILED = "afflux: cannot serve: {error}"
"""The line on standard error if the engine does not start; with an owner, which reads what it has
to know there, on standard output."""

_LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"

_PR_SET_PDEATHSIG = 1

_log = logging.getLogger("afflux")


class Server(Protocol):
    """The server that an aggregator's process runs.

    Attributes:
        engine_name: The engine's kind.
        url: Where it listens, for AFFLUX_AGGREGATOR.
    """

    engine_name: str
    url: str

    def serve_forever(self) -> None:
        """Serve until `stop` is called."""

    def stop(self) -> None:
        """Make `serve_forever` return soon. Thread-safe."""


@contextlib.contextmanager
def log_to_error_output(level: int | str) -> Iterator[None]:
    """Write the log of this process to standard error meanwhile, with times and levels.

    Args:
        level: The least that is written, as Python's `logging` has it, in small letters or not.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    before = _log.level, _log.propagate
    _log.addHandler(handler)
    _log.propagate = False
    _log.setLevel(level.upper() if isinstance(level, str) else level)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(before[0])
        _log.propagate = before[1]


def serve_until_stopped(
    serving: AbstractContextManager[Server],
    owner: int | None = None,
    owner_signal: bool = False,
) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP, or the owner's end; return the exit status.

    Args:
        serving: Makes the server, and ends the engine behind it.
        owner: Parent process, whose end is ours; also when standard input ends. None: there is
            none.
        owner_signal: Also end with the thread that started this process (Linux).
    """
    ready = threading.Event()
    stopped, stop = os.pipe()

    by: list[int] = []

    def terminate(number: int, *_: object) -> None:
        # A second signal may interrupt this, as when the owner's end is noticed in two ways. So
        # this takes no lock, for which it would wait for ever, and ignores all further signals.
        for each in ends:
            signal.signal(each, signal.SIG_IGN)
        by.append(number)
        os.write(stop, b"x")
        # Building a simulated engine takes half a minute and has no other place to stop.
        if not ready.is_set():
            raise SystemExit(0)

    # Ctrl-C reaches the whole terminal; an owner decides when we are no longer needed.
    ends = [signal.SIGTERM] if owner else [signal.SIGTERM, signal.SIGINT]
    # The end of its terminal ends it as well, so that no job stays on a board; not below nohup.
    if not owner and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        ends.append(signal.SIGHUP)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in ends:
        signal.signal(number, terminate)
    if owner:
        _end_with_owner(owner, owner_signal)
    with contextlib.ExitStack() as held:
        try:
            server = held.enter_context(serving)
        except Exception as error:
            # It ends by itself now.
            ready.set()
            said = _FAILED.format(error=" ".join(str(error).split()))
            _say(said, sys.stdout if owner else sys.stderr)
            return 1
        thread = threading.Thread(target=_serve_forever, args=(server,), name="afflux-server")
        # From now on a signal is noticed below: there is a thread to be ended first.
        ready.set()
        thread.start()
        _say(_READY.format(server=server), sys.stdout)
        asked = False
        while not asked and thread.is_alive():
            asked = bool(select.select([stopped], [], [], 0.5)[0])
        server.stop()
        thread.join()
        cause = f"{signal.Signals(by[0]).name} has come" if by else "it has failed"
        _log.log(logging.INFO if asked else logging.ERROR, "the aggregator has ended: %s", cause)
        return 0 if asked else 1


def _end_with_owner(owner: int, signalled: bool) -> None:
    # Two ways, as each has a gap: a forked copy of the owner keeps the pipe open; and the kernel's
    # signal comes when the owner's *thread* ends, so only a main thread asks for it.
    if signalled and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != owner:
        raise SystemExit(0)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="afflux-owner", daemon=True).start()


def _say(line: str, output: TextIO) -> None:
    # Nobody may read it, as below `| head -0`; the ranks need no words.
    with contextlib.suppress(OSError):
        print(line, file=output, flush=True)


def _serve_forever(server: Server) -> None:
    try:
        server.serve_forever()
    except BoardFailed as error:
        # Nothing of this program's, so where in it that was noticed helps nobody.
        _log.error("the board is lost, and its controller ends: %s", error)
