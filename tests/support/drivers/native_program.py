"""The C++ test programs, with a bug planted in what they test or without."""

import fcntl
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.checkout import BUILD
from tests.support.drivers.native_builds import (
    PACKAGE,
    SOURCES,
    compile_kernels,
    compiler,
    copy_source,
    link,
)
from tests.support.planting import Bug

__all__ = ["passes"]

FOLDER = BUILD / "tests" / "programs"
ARGUMENTS = ("1", "24")
"""First seed and number of groups, for a program that takes them."""

LIMIT_S = 300

PARTS = {
    "shared": ("shared", "collectives", "sums", "arithmetic", "c_api"),
    "aggregator": ("aggregator", "engine", "datagrams", "packet"),
    "engine": ("engine", "packet"),
    "datagrams": ("datagrams",),
    "narrow": ("narrow",),
    "rows": ("rows",),
    "selection": ("selection",),
    "sums": ("sums", "arithmetic"),
    "worker": ("worker", "engine", "datagrams", "packet", "arithmetic", "c_api"),
}
"""Libraries by the first word of a program's name: what it tests, and what that stands on."""

UNSANITIZED = ("arithmetic",)
"""It has neither threads nor atomics, and takes long to compile."""


def source_of(program: str) -> Path:
    return SOURCES / "tests" / f"{program}.cpp"


def main_object(program: str) -> Path:
    """Return the object of the program itself, which is compiled again if a source has changed."""
    made = FOLDER / f"{program}.o"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{program}.lock", "w") as lock:
        # The processes that share the tests need the same object.
        fcntl.flock(lock, fcntl.LOCK_EX)
        newest = max(path.stat().st_mtime_ns for path in SOURCES.glob("*/*.*pp"))
        if not made.exists() or made.stat().st_mtime_ns < newest:
            options = ["-std=c++20", "-O1", "-fvisibility=hidden", f"-I{SOURCES}", f"-I{PACKAGE}"]
            aside = made.with_suffix(".new.o")
            command = [compiler(), *options, "-c", str(source_of(program)), "-o", str(aside)]
            subprocess.run(command, check=True)
            aside.rename(made)
    return made


def passes(
    name: str,
    bug: Bug | None,
    *,
    program: str = "shared_stress_test",
    sanitized: bool = False,
    runs: int = 1,
    kernels: Sequence[str] | None = None,
    arguments: Sequence[str] = ARGUMENTS,
    limit_s: float = LIMIT_S,
) -> bool:
    """Return whether a test program passes with this bug in what it tests.

    Args:
        name: Of the bug; names a folder.
        bug: The bug.
        program: Name of the program, whose first word is what it tests.
        sanitized: Whether the program and what it tests are compiled with the thread sanitizer, but
            for the arithmetic.
        runs: How often it is run; it passes if it does each time.
        kernels: Options with which the kernels of what it tests are compiled again, with the bug in
            one of their headers.
        arguments: Of the program.
        limit_s: After how many seconds a run is ended with an error.
    """
    folder = FOLDER / re.sub(r"\W+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    executable = folder / f"{program}.{os.getpid()}"
    parts = PARTS[program.partition("_")[0]]
    if kernels is not None:
        changed = compile_kernels(folder, parts[0], bug, *kernels)
    else:
        changed = [copy_source(folder, bug)] if bug is not None else []
    if sanitized:
        compiled = [part for part in parts if part not in UNSANITIZED]
        all_sources = [path for part in compiled for path in sorted(SOURCES.glob(f"{part}/*.cpp"))]
        others = [path for path in all_sources if bug is None or path != SOURCES / bug.file]
        inputs = [source_of(program), *changed, *others]
        rest = [part for part in parts if part in UNSANITIZED]
        link(executable, inputs, rest, "-O1", "-g1", "-fsanitize=thread")
    else:
        link(executable, [main_object(program), *changed], parts, "-O1")
    try:
        command = [str(executable), *arguments]
        return all(
            subprocess.run(command, check=False, timeout=limit_s).returncode == 0
            for _ in range(runs)
        )
    finally:
        executable.unlink()
