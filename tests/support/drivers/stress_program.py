"""The stress test of the shared-memory group, with a bug planted in the group or without."""

import fcntl
import os
import re
import subprocess
from pathlib import Path

from tests.support.checkout import BUILD
from tests.support.drivers.native_builds import SOURCES, compiler, copy_source, link
from tests.support.planting import Bug

__all__ = ["passes"]

PROGRAM = SOURCES / "tests" / "shared_stress_test.cpp"
FOLDER = BUILD / "tests" / "stress"
ARGUMENTS = ("1", "24")
"""First seed and number of groups."""

LIMIT_S = 300


def main_object() -> Path:
    """Return the object of the program itself, which is compiled again if a source has changed."""
    made = FOLDER / "shared_stress_test.o"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        # The processes that share the tests need the same object.
        fcntl.flock(lock, fcntl.LOCK_EX)
        newest = max(path.stat().st_mtime_ns for path in SOURCES.glob("*/*.*pp"))
        if not made.exists() or made.stat().st_mtime_ns < newest:
            options = ["-std=c++20", "-O2", "-fvisibility=hidden", f"-I{SOURCES}"]
            aside = made.with_suffix(".new.o")
            command = [compiler(), *options, "-c", str(PROGRAM), "-o", str(aside)]
            subprocess.run(command, check=True)
            aside.rename(made)
    return made


def passes(name: str, bug: Bug | None, *, sanitized: bool = False) -> bool:
    """Return whether the stress test passes on a group with this bug.

    Args:
        name: Of the bug; names a folder.
        bug: The bug.
        sanitized: Whether the group and the test are compiled with the thread sanitizer. The codec,
            which has neither threads nor atomics, is as it was built.
    """
    folder = FOLDER / re.sub(r"\W+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"stress.{os.getpid()}"
    changed = [copy_source(folder, bug)] if bug is not None else []
    if sanitized:
        names = {path.name for path in changed}
        others = [path for path in SOURCES.glob("shared/*.cpp") if path.name not in names]
        inputs = [PROGRAM, *changed, *others]
        link(program, inputs, ("codec",), "-O1", "-g1", "-fsanitize=thread")
    else:
        link(program, [main_object(), *changed], ("shared", "codec"), "-O2")
    try:
        status = subprocess.run([program, *ARGUMENTS], check=False, timeout=LIMIT_S).returncode
    finally:
        program.unlink()
    return status == 0
