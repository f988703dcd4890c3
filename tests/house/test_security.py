"""docs/security.md names tests that exist."""

import ast
import re

import pytest

from docs.generate.source_tree import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`((?:,\s`::\w+`)*)")


def named():
    """Read each file that the page names, with the tests of it."""
    for path, first, others in NAMED.findall(PAGE):
        for test in filter(None, [first, *re.findall(r"`::(\w+)`", others)]):
            yield path, test
        if not first:
            yield path, ""


@pytest.mark.parametrize(("path", "test"), sorted(set(named())))
def test_what_is_named_exists(path, test):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not test or test in functions


def test_no_name_is_overlooked():
    assert len(re.findall(r"`(tests/|::test_)", PAGE)) == len(list(named()))
