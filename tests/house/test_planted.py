"""Every bug that is planted is still there to be planted.

Most of them are compiled by `make test-long`, `make formal` and `make mutation-native` alone: a
source that has changed would be noticed there, weeks later.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate.source_tree import ROOT
from tests.support.planting import Bug

FOLDERS = ("hdl/afflux_hdl", "drivers/native", "drivers/afflux_drivers", "host/afflux")
"""Below which a bug's file is named."""


def strings_of(tree: ast.Module) -> dict[str, str]:
    """Return the module's own names for texts, such as RECEIVE = "engine/receive.py"."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        else:
            pairs = [(target, value)]
        for name, text in pairs:
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant):
                found[name.id] = str(text.value)
    return found


def planted() -> Iterator[tuple[str, Bug]]:
    """Read the bugs that the tests name in full, and where."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = strings_of(tree)
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            # A bug that a proof must find begins with its name and a depth.
            skipped = {"Bug": 0, "SoughtBug": 2}.get(call.func.id)
            if skipped is None:
                continue
            texts = [
                value.value
                if isinstance(value, ast.Constant)
                else names.get(getattr(value, "id", ""))
                for value in call.args[skipped:]
            ]
            if len(texts) >= 3 and all(isinstance(text, str) for text in texts[:3]):
                where = f"{path.relative_to(ROOT)}:{call.lineno}"
                yield where, Bug(str(texts[0]), str(texts[1]), str(texts[2]))


PLANTED = list(planted())


def test_nearly_all_are_looked_at() -> None:
    assert len(PLANTED) > 100


@pytest.mark.parametrize(("where", "bug"), PLANTED, ids=[where for where, _ in PLANTED])
def test_its_text_occurs_once(where: str, bug: Bug) -> None:
    sources = [ROOT / folder / bug.file for folder in FOLDERS]
    (source,) = [each for each in sources if Path(each).is_file()]
    bug.planted_in(source.read_text(encoding="utf-8"))
