"""Interpreters for `make wheels`: those that answer, each for the wheel that it can build."""

import stat
import sys
from pathlib import Path

from tests.wheels.interpreters import KINDS, Interpreter, found

OLD, STABLE = KINDS


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_programs_that_are_no_interpreters_are_left_out(tmp_path):
    launcher = program(tmp_path / "a-launcher", "echo 'no such version' >&2; exit 127")
    threads = program(tmp_path / "b", 'echo \'{"version": [3, 14], "abi": false}\'')
    later = program(tmp_path / "c", 'echo \'{"version": [3, 14], "abi": true}\'')
    commands = [launcher, str(tmp_path / "nothing"), threads, sys.executable, later]
    assert found(commands) == [
        Interpreter(sys.executable, sys.version_info[:2]),
        Interpreter(later, (3, 14)),
    ]


def test_each_wheel_takes_the_first_interpreter_that_can_build_it():
    made = [Interpreter(f"python3.{minor}", (3, minor)) for minor in (10, 13, 11, 12)]
    assert OLD.first_of(made) == made[2]
    assert STABLE.first_of(made) == made[1]
    assert STABLE.first_of(made[:1]) is None
