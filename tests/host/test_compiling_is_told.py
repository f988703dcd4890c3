"""A host that compiles the adapter says so on stderr, once: at its start and when it is done."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
import torch

from afflux.adapters import native

WAITERS = 3

# In place of g++. It takes long enough for the others to ask for the same adapter meanwhile.
COMPILER = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
sleep 0.3
touch "$2"
"""


@pytest.fixture
def said(tmp_path, monkeypatch, capfd):
    """Return a function that lets several callers load the adapter, and returns stderr's lines."""
    compiler = tmp_path / "a-compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("AFFLUX_CACHE", str(tmp_path / "cache"))

    monkeypatch.setattr(native, "_import", lambda path: ModuleType(path.stem))

    def load() -> list[str]:
        with ThreadPoolExecutor(WAITERS) as callers:
            for each in [callers.submit(native.load.__wrapped__) for _ in range(WAITERS)]:
                each.result()
        out, err = capfd.readouterr()
        assert out == ""
        return err.splitlines()

    return load


def test_it_is_told_once_and_not_again(said):
    begin, end = said()
    version = torch.__version__
    assert begin == f"afflux: compiling the torch adapter for torch {version} (once, about 30 s)"
    assert re.fullmatch(r"afflux: the torch adapter is compiled \(\d+ s\)", end)
    assert said() == []


def test_callers_that_each_compile_are_noticed(said, monkeypatch):
    def uncached(folder: Path, _key: str, build, **_: object) -> Path:
        folder.mkdir(exist_ok=True)
        build(folder)
        return folder

    monkeypatch.setattr(native, "cached", uncached)
    assert len(said()) == 2 * WAITERS
