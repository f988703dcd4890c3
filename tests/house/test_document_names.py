"""The documents name modules, functions and classes that exist, in Python that compiles."""

import importlib
import re
from textwrap import dedent
from typing import Any

import pytest

from docs.generate.source_tree import ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAME = re.compile(r"(?<![\w/~.-])afflux(?:_drivers|_hdl|_sim)?(?:\.[A-Za-z_]\w*)+")
FILE_SUFFIXES = {"conf", "secret", "service"}
PYTHON = re.compile(r"^( *)```python\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def resolve(name: str) -> Any:
    """Return what a dotted name stands for.

    Raises:
        AttributeError: Nothing.
    """
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:depth]))
            except ImportError:
                raise AttributeError(f"nothing is called {'.'.join(parts[:depth])}") from None
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_name_exists(document) -> None:
    for name in sorted(set(NAME.findall(document.read_text()))):
        if name.rpartition(".")[2] not in FILE_SUFFIXES:
            resolve(name)


def test_names_are_found() -> None:
    found = {name for document in DOCUMENTS for name in NAME.findall(document.read_text())}
    assert {"afflux.ddp_hook", "afflux.hooks.register", "afflux.hooks.Priorities"} <= found


@pytest.mark.parametrize("name", ["afflux.Priorities", "afflux.hooks.no", "afflux.nowhere.Core"])
def test_a_name_of_nothing_is_found_out(name) -> None:
    with pytest.raises(AttributeError, match="nothing is called"):
        resolve(name)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_listing_compiles(document) -> None:
    for _, listing in PYTHON.findall(document.read_text()):
        compile(dedent(listing), document.name, "exec")
