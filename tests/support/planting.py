"""Plants a bug: replaces one text of one source file, in a copy of the sources.

Every check that must be able to fail is run on such a copy: of a Python package, of C++ sources, or
of a single module's names.
"""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

__all__ = ["Bug", "copy_package", "first_now", "names_with"]


@dataclass(frozen=True)
class Bug:
    """A text that must occur exactly once in a source file, and its replacement.

    Attributes:
        file: Path of the source file below the folder of the sources.
        right: The text. Any white space in it matches any other: formatting does not matter.
        wrong: Its replacement, as it stands.
    """

    file: str
    right: str
    wrong: str

    def planted_in(self, source: str) -> str:
        """Return the source with the bug.

        Raises:
            ValueError: If the text does not occur exactly once. Not an AssertionError: code that
                waits for one, which is how most bugs are noticed, would take it for that.
        """
        pattern = r"\s+".join(map(re.escape, self.right.split()))
        parts = re.split(pattern, source)
        if len(parts) != 2:
            raise ValueError(f"{self.file} has {self.right!r} {len(parts) - 1} times, not once")
        return self.wrong.join(parts)


def copy_package(package: ModuleType, folder: Path, bug: Bug | None = None) -> None:
    """Copy a Python package into a folder, and plant the bug in the copy if there is one.

    `tests.support.shadow.environment_with` makes a process import the copy.
    """
    copy = folder / package.__name__
    source = Path(str(package.__file__)).parent
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if bug is not None:
        path = copy / bug.file
        path.write_text(bug.planted_in(path.read_text(encoding="utf-8")), encoding="utf-8")


def names_with(module: ModuleType, right: str, wrong: str) -> dict[str, Any]:
    """Return the names of a module whose source has `wrong` in place of `right`."""
    path = Path(str(module.__file__))
    source = Bug(path.name, right, wrong).planted_in(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source, str(path), "exec"), names)
    return names


def first_now(bugs: Iterable[str]) -> list[Any]:
    """Return names for a test: the first bug's, and the others' marked for the long tests.

    Each bug is a program of its own to compile, and one shows that the check can fail.
    """
    first, *others = bugs
    return [first, *(pytest.param(name, marks=pytest.mark.long) for name in others)]
