"""Compiles parts of the C++ again with a bug planted; all else is as `make native` built it."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.checkout import BUILD, ROOT
from tests.support.planting import Bug

__all__ = ["OBJECTS", "PACKAGE", "SOURCES", "compile_kernels", "compiler", "copy_source", "link"]

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


def compile_kernels(folder: Path, part: str, bug: Bug | None, *options: str) -> list[Path]:
    """Compile a part's kernels for each instruction set as `make native` does; return the objects.

    Args:
        folder: Where to compile.
        part: Name of the part, whose kernels are in files `kernels_*.cpp`.
        bug: One in a header of theirs, if any.
        options: Of the compiler, in addition, such as another optimisation.
    """
    if bug is not None:
        copy = folder / bug.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        source = (SOURCES / bug.file).read_text(encoding="utf-8")
        copy.write_text(bug.planted_in(source), encoding="utf-8")
    objects = []
    for entry in json.loads((OBJECTS / "compile_commands.json").read_text(encoding="utf-8")):
        source_file = Path(entry["file"])
        if source_file.parent != SOURCES / part or not source_file.match("kernels_*.cpp"):
            continue
        command = shlex.split(entry["command"])
        made = folder / f"{source_file.stem}.o"
        command[command.index("-o") + 1] = str(made)
        # A header in the folder is found before the one that it is a copy of.
        command[1:1] = [f"-I{folder}"]
        subprocess.run([*command, *options], check=True, cwd=entry["directory"])
        objects.append(made)
    return objects


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
