"""The site has every page, reads Markdown as GitHub does, and its references are the code's."""

import argparse
import re
import tomllib

import pytest
from markdown import markdown

from docs.generate import command_reference, environment_reference
from docs.generate.github_markdown import anchors, rewritten
from docs.generate.site import SETTINGS, faults_of, named_in
from docs.generate.source_tree import ROOT

DOCS = ROOT / "docs"
NAVIGATION = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["project"]["nav"]


def test_every_page_has_a_place() -> None:
    assert faults_of(NAVIGATION, DOCS) == []
    assert len(list(named_in(NAVIGATION))) > 40


def test_pages_without_a_place_are_found(tmp_path) -> None:
    for name in ("index.md", "lost.md", "deep/page.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# Page\n")
    navigation = [{"Home": "index.md"}, {"Part": [{"Deep": "deep/page.md"}, {"Gone": "gone.md"}]}]
    assert faults_of([*navigation, {"Again": "index.md"}], tmp_path) == [
        "lost.md is in no part of the navigation",
        "gone.md is in the navigation, but does not exist",
        "index.md is in the navigation twice",
    ]


def html_of(text: str) -> str:
    found = markdown("\n".join(rewritten(text.split("\n"))), extensions=["tables", "fenced_code"])
    return " ".join(found.split()).replace("> <", "><").replace("> ", ">").replace(" <", "<")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<!-- note -->\n| a |\n|---|\n| b |\n<!-- end -->", "<td>b</td></tr></tbody></table>"),
        ("Text\n| a |\n|---|\n| b |", "<p>Text</p><table>"),
        ("Text:\n* one\n* two", "<p>Text:</p><ul><li>one</li><li>two</li></ul>"),
        ("* one\n  more\n* two", "<ul><li>one more</li><li>two</li></ul>"),
        (
            "1. one\n\n   more\n\n2. two",
            "<ol><li><p>one</p><p>more</p></li><li><p>two</p></li></ol>",
        ),
        ("* one\n  * in it\n* two", "<ul><li>one<ul><li>in it</li></ul></li><li>two</li></ul>"),
        ("1. one\n\n   | a |\n   |---|\n   | b |", "<ol><li><p>one</p><table>"),
        ("1. one\n\n       code", "<ol><li>one<pre><code>code</code></pre></li></ol>"),
        ("```\n* one\n  | x\n```", "<pre><code>* one | x</code></pre>"),
        ("Text\n\n    | x\n    * y", "<p>Text</p><pre><code>| x * y</code></pre>"),
        ("It was in\n2016. Then", "<p>It was in 2016. Then</p>"),
    ],
)
def test_the_site_shows_what_github_shows(text: str, expected: str) -> None:
    assert expected in html_of(text)


def test_anchors_are_those_of_github() -> None:
    assert anchors()("11. A block's way: `a_b.c`", "-") == "11-a-blocks-way-a_bc"


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("commands.md", command_reference.render),
        ("environment.md", environment_reference.render),
    ],
)
def test_references_are_what_the_code_says(name: str, render) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert render(text) == text, f"docs/{name} is of another state of the code: make docs"
    assert render(re.sub(r"(?m)^\| `-.*\n|^## AFFLUX_.*\n", "", text)) == text


def test_each_subcommand_has_options_on_the_page() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    (actions,) = [
        each
        for each in command_reference.parser_of([])._actions
        if isinstance(each, argparse._SubParsersAction)
    ]
    for name in actions.choices:
        chapter = text.partition(f"\n## afflux {name}\n")[2].partition("\n## ")[0]
        assert "\n| `" in chapter, name


def test_a_variable_that_the_table_lacks_is_found(monkeypatch) -> None:
    monkeypatch.setitem(environment_reference.variables.VARIABLES, "AFFLUX_NEW", ("new", str))
    with pytest.raises(LookupError, match="AFFLUX_NEW"):
        environment_reference.render("<!-- variables --><!-- end -->")
