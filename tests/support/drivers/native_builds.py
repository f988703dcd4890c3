"""Compiles parts of the C++ again with a bug planted; all else is as `make native` built it."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.checkout import BUILD, ROOT
from tests.support.planting import Bug

__all__ = ["OBJECTS", "PACKAGE", "SOURCES", "compiler", "copy_source", "link"]

SOURCES = ROOT / "drivers" / "native"
PACKAGE = ROOT / "drivers" / "afflux_drivers"
"""Has the header that other libraries include too."""
OBJECTS = BUILD / "native"
"""Where `make native` compiles."""


def compiler() -> str:
    """Return the path of the C++ compiler."""
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        raise FileNotFoundError("no C++ compiler: g++ or clang++")
    return found


def copy_source(folder: Path, bug: Bug) -> Path:
    """Write the one source file that has the bug into a folder, and return its path there."""
    assert bug.file.endswith(".cpp"), f"{bug.file} is compiled into more than one object"
    source = SOURCES / bug.file
    copy = folder / source.name
    copy.write_text(bug.planted_in(source.read_text(encoding="utf-8")), encoding="utf-8")
    return copy


def link(output: Path, inputs: Sequence[Path], parts: Sequence[str], *options: str) -> None:
    """Compile and link into a library or program.

    Args:
        output: The library or program.
        inputs: Sources and objects. Their definitions are not taken from the parts.
        parts: Libraries of `make native` by name, each before those that it uses.
        options: Of the compiler, in addition.
    """
    archives = [OBJECTS / f"lib{part}.a" for part in parts]
    missing = [str(path) for path in archives if not path.exists()]
    if missing:
        raise FileNotFoundError(f"not built: {', '.join(missing)}: make native")
    command = [
        compiler(),
        "-std=c++20",
        "-fvisibility=hidden",
        f"-I{SOURCES}",
        f"-I{PACKAGE}",
        *options,
    ]
    subprocess.run(
        [*command, *map(str, inputs), *map(str, archives), "-pthread", "-o", str(output)],
        check=True,
    )
