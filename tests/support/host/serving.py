"""`afflux serve` in a process of its own."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.network.host import Host

__all__ = ["finish", "software_engine", "start"]


def start(
    *options: str,
    engine: Sequence[str] = ("soft",),
    stdin: int = subprocess.DEVNULL,
    program: Sequence[str] = ("-m", "afflux.commands.cli", "serve"),
    place: Host | None = None,
) -> tuple[subprocess.Popen[str], str]:
    """Start an aggregator with these options; return its process and its first line.

    Args:
        options: More options of `afflux serve`.
        engine: Which one; of a device, with its URL.
        stdin: Its standard input.
        program: The program that Python runs.
        place: A host of a network where it runs; it listens at that host's address, unless the
            options name another, and asks for no secret.
    """
    command = [sys.executable, *program, *engine]
    if place is not None:
        command = place.command(*command, "--host", place.address, "--no-secret")
    command += options
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    # One that cannot serve says so elsewhere.
    return process, process.stdout.readline() or process.stderr.readline()


@contextlib.contextmanager
def software_engine() -> Iterator[tuple[str, int]]:
    """Yield the URL of a software engine that lives as long as the block, and its process."""
    process, line = start("--port", "0", "--no-secret")
    try:
        yield "udp://" + line.rpartition("udp://")[2].strip(), process.pid
    finally:
        process.kill()
        finish(process)


def finish(process: subprocess.Popen[str]) -> int | str:
    """Wait for the process to end, and return its status, or "killed" if it did not end."""
    assert process.stdout is not None and process.stderr is not None
    try:
        return process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "killed"
    finally:
        process.stdout.close()
        process.stderr.close()
