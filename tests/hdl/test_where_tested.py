"""Each part's module says at the end of its docstring where it is proved and tested."""

import ast
import re
from pathlib import Path

import pytest

import afflux_hdl
from tests.support.checkout import ROOT

SOURCES = Path(afflux_hdl.__file__).parent
PARTS = [path for path in sorted(SOURCES.rglob("*.py")) if "(wiring.Component)" in path.read_text()]


def files_named(path: Path) -> list[str]:
    """Return the files of the paragraph that says so, the last one."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    last = text.split("\n\n")[-1]
    assert re.search(r"Tested:\s`", last), f"{path.name} does not say where it is tested"
    return re.findall(r"`(tests/[\w./]+)`", last)


def test_all_parts_are_looked_at() -> None:
    known = {
        "merge.py",
        "verdict.py",
        "echo.py",
        "queue.py",
        "transmit.py",
        "box.py",
        "management.py",
    }
    assert known <= {path.name for path in PARTS}


@pytest.mark.parametrize("path", PARTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_part_says_where_it_is_tested(path: Path) -> None:
    named = files_named(path)
    assert named
    for name in named:
        assert (ROOT / name).is_file(), f"{path.name} names {name}"
