"""The test programs of the shared-memory group, with a bug planted in the group or without."""

import fcntl
import os
import re
import subprocess
from pathlib import Path

from tests.support.checkout import BUILD
from tests.support.drivers.native_builds import PACKAGE, SOURCES, compiler, copy_source, link
from tests.support.planting import Bug

__all__ = ["passes"]

FOLDER = BUILD / "tests" / "stress"
ARGUMENTS = ("1", "24")
"""First seed and number of groups, for a program that takes them."""

LIMIT_S = 300


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
            options = ["-std=c++20", "-O2", "-fvisibility=hidden", f"-I{SOURCES}", f"-I{PACKAGE}"]
            aside = made.with_suffix(".new.o")
            command = [compiler(), *options, "-c", str(source_of(program)), "-o", str(aside)]
            subprocess.run(command, check=True)
            aside.rename(made)
    return made


def passes(
    name: str, bug: Bug | None, *, program: str = "shared_stress_test", sanitized: bool = False
) -> bool:
    """Return whether a test program passes on a group with this bug.

    Args:
        name: Of the bug; names a folder.
        bug: The bug.
        program: Name of the program.
        sanitized: Whether the group and the test are compiled with the thread sanitizer. The codec,
            which has neither threads nor atomics, is as it was built.
    """
    folder = FOLDER / re.sub(r"\W+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    executable = folder / f"{program}.{os.getpid()}"
    changed = [copy_source(folder, bug)] if bug is not None else []
    if sanitized:
        names = {path.name for path in changed}
        sources = [*SOURCES.glob("shared/*.cpp"), *SOURCES.glob("calls/*.cpp")]
        others = [path for path in sources if path.name not in names]
        inputs = [source_of(program), *changed, *others]
        link(executable, inputs, ("codec",), "-O1", "-g1", "-fsanitize=thread")
    else:
        link(executable, [main_object(program), *changed], ("shared", "codec", "calls"), "-O2")
    try:
        status = subprocess.run([executable, *ARGUMENTS], check=False, timeout=LIMIT_S).returncode
    finally:
        executable.unlink()
    return status == 0
