"""A compiler that fails: one rank of a host tries it, once, and groups do without the adapter."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from afflux.adapters import native
from tests.support.host.ranks import run_ranks, values


class Compiler:
    """A program that notes that it was started, and fails.

    Args:
        folder: For it and what it notes.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._notes = folder / "a-compiler", folder / "notes"
        self._notes.touch()
        self.write("a-compiler: fatal error: out of ideas")
        self.environment = {
            "CXX": str(self.path),
            "AFFLUX_CACHE": str(folder / "cache"),
            "AFFLUX_ADAPTER": "auto",
            "AFFLUX_AGGREGATOR": "shm://",
        }

    def write(self, error: str, end: str = "exit 1") -> None:
        """Make it say this, and end so."""
        lines = ["#!/bin/sh", f"echo started >>{self._notes}", "sleep 0.5", f"echo '{error}'", end]
        self.path.write_text("\n".join(lines))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def starts(self) -> int:
        """Return how often it was started."""
        return len(self._notes.read_text().splitlines())


@pytest.fixture
def compiler(tmp_path):
    return Compiler(tmp_path)


def summed(_rank, _size):
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor.tolist()


def test_one_rank_tries_once_until_the_compiler_is_another(compiler):
    def start() -> None:
        assert values(run_ranks(summed, 3, environment=compiler.environment)) == [[3.0] * 3] * 3

    start()
    assert compiler.starts() == 1
    start()
    assert compiler.starts() == 1
    compiler.write("a-compiler: error: a newer version of it")
    start()
    assert compiler.starts() == 2


def by_hand(compiler: Compiler) -> str:
    command = [sys.executable, "-m", "afflux.adapters.native"]
    environment = {**os.environ, **compiler.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.long
def test_whoever_asks_by_hand_has_it_tried_again_and_reads_the_cause(compiler):
    for tries in (1, 2):
        said = by_hand(compiler)
        assert compiler.starts() == tries
        assert "a-compiler: fatal error: out of ideas" in said
        log = Path(said.rpartition("(log: ")[2].rpartition(")")[0])
        assert "out of ideas" in log.read_text()


def loaded_in_vain() -> str:
    with pytest.raises(native.AdapterUnavailable) as caught:
        native.load.__wrapped__()
    return str(caught.value)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        ("cc1plus: fatal error: Killed signal terminated program cc1plus", "exit 1"),
        ("ld: final link failed: No space left on device", "exit 1"),
        ("", "kill -9 $$"),
    ],
)
def test_a_machine_in_need_is_no_verdict(compiler, monkeypatch, error, end):
    compiler.write(error, end)
    for name, value in compiler.environment.items():
        monkeypatch.setenv(name, value)
    for tries in (1, 2):
        loaded_in_vain()
        assert compiler.starts() == tries


def test_a_compiler_that_hangs_is_ended_and_remembered(compiler, monkeypatch):
    compiler.write("", "sleep 300")
    monkeypatch.setattr(native, "_LIMIT_S", 3.0)
    for name, value in compiler.environment.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        assert "within 3 s" in loaded_in_vain()
        assert compiler.starts() == 1


def test_a_compiler_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/g++ -O1")
    with pytest.raises(native.AdapterUnavailable) as raised:
        native.load.__wrapped__()
    assert str(raised.value) == "no C++ compiler (/no/such/g++)"
