"""Which interpreters wheels are built with: those that are there, asked for their versions."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["KINDS", "Interpreter", "Kind", "found", "installed"]

_ASKED = """
import ensurepip, json, platform, sys, sysconfig, venv
json.dump({
    "version": sys.version_info[:2],
    "abi": platform.python_implementation() == "CPython"
        and not sysconfig.get_config_var("Py_GIL_DISABLED"),
}, sys.stdout)
"""

_NAMES = tuple(f"python3.{minor}" for minor in range(11, 20))


@dataclass(frozen=True)
class Interpreter:
    """A CPython with a global lock that can make virtual environments.

    Attributes:
        command: Its path.
        version: Major and minor.
    """

    command: str
    version: tuple[int, int]


@dataclass(frozen=True)
class Kind:
    """A wheel to build.

    Attributes:
        tags: Those of Python and ABI in the wheel's name.
        wanted: The interpreters that can build it, in words.
        oldest: The oldest version of Python that can build it.
        newest: The newest.
    """

    tags: str
    wanted: str
    oldest: tuple[int, int]
    newest: tuple[int, int]

    def first_of(self, interpreters: Iterable[Interpreter]) -> Interpreter | None:
        """Return the first interpreter that can build it."""
        fitting = (each for each in interpreters if self.oldest <= each.version <= self.newest)
        return next(fitting, None)


KINDS = (
    Kind("cp311-cp311", "Python 3.11", (3, 11), (3, 11)),
    # nanobind's stable ABI begins there.
    Kind("cp312-abi3", "Python 3.12 or later", (3, 12), (3, 99)),
)


def installed(chosen: str) -> list[str]:
    """Return commands that may be interpreters: the chosen one, and all on PATH by their names."""
    return [chosen, *filter(None, map(shutil.which, _NAMES))]


def found(commands: Iterable[str]) -> list[Interpreter]:
    """Return the interpreters among these commands, in their order."""
    answers = ((command, _answer(command)) for command in commands)
    return [
        Interpreter(command, (answer["version"][0], answer["version"][1]))
        for command, answer in answers
        if answer is not None and answer["abi"]
    ]


def _answer(command: str) -> dict | None:
    """Return what the interpreter says of itself; None if it is not one, or lacks venv."""
    try:
        done = subprocess.run(
            [command, "-c", _ASKED], capture_output=True, check=True, text=True, timeout=30
        )
        return dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        # A launcher that finds no version behind its name ends so, too.
        return None
