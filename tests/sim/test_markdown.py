"""Pages are wrapped for readers of plain text, and the glossary can be searched by eye."""

import re

import pytest

from tests.support.checkout import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COLUMNS = 120
LINK_ALONE = re.compile(r"^\s*[*-]?\s*!?\[[^]]*\]\([^)]*\)\S*$")


def too_long(text: str) -> list[int]:
    """Return the numbers of the lines of prose that are longer than `COLUMNS`."""
    numbers = []
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
            continue
        # Code in a list is indented further, and never longer here.
        is_code = fenced or line.startswith("    ")
        is_table = line.lstrip().startswith("|")
        if len(line) > COLUMNS and not (is_code or is_table or LINK_ALONE.match(line)):
            numbers.append(number)
    return numbers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_wrapped(page):
    found = too_long(page.read_text(encoding="utf-8"))
    assert not found, f"{page.name}: lines {found} are longer than {COLUMNS} columns"


def test_long_prose_is_seen_and_nothing_else():
    long = "word " * 30
    tables = f"| {long} |\n   | {long} |\n"
    text = f"{long}\n{tables}```\n{long}\n```\n    {long}\n* {long}\n[{long}](page.md)\n"
    assert too_long(text) == [1, 8]


def glossary_words(text: str) -> list[str]:
    """Return the first cells of the rows of the glossary's table."""
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert rows[0].startswith("| word |")
    return [row.split("|")[1].strip() for row in rows[1:]]


def test_the_glossary_is_in_alphabetical_order_without_repetition():
    words = glossary_words((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert len(words) in range(40, 61)
    assert words == sorted(set(words), key=str.lower)
