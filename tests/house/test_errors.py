"""docs/errors.md has every error that users may meet, with the class that it derives from."""

import ast
import re

from docs.generate.source_tree import ROOT

PAGE = ROOT / "docs" / "errors.md"
PACKAGES = ("host/afflux", "drivers/afflux_drivers")
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def base_of(node):
    return node.bases[0].id if node.bases and isinstance(node.bases[0], ast.Name) else ""


def defined():
    """Read the exceptions of the packages, with the first class that each derives from."""
    bases = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = base_of(node)
    found = {"Exception", "RuntimeError", "ValueError", "TypeError", "OSError", "Warning"}
    while more := {name for name, base in bases.items() if base in found} - found:
        found |= more
    return {name: bases[name] for name in found & set(bases) if not name.startswith("_")}


def documented():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len({name for name, *_ in rows}) == len(rows), "an error stands twice"
    return {name: base for name, base, *_ in rows}


def test_every_error_is_on_the_page_and_no_other():
    assert documented() == defined()


def test_the_check_sees_what_is_derived_from_what_is_derived():
    assert defined()["RanksEnded"] == "RanksMissing"
    assert len(defined()) > 20
