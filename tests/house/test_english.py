"""Prose has a subject first: patterns that make a reader parse a sentence twice are found."""

import ast
import re
import subprocess
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.generate.source_tree import ROOT


class Pattern(NamedTuple):
    """Prose that is not to be written: where it is met, why not, and what to write instead."""

    found: str
    reason: str
    instead: str


_STATEMENT = r"(?![^.?!]*\?)"

PATTERNS = [
    Pattern(
        rf"(?:^|(?<=[.!?:] )|(?<=; ))(?:What|Who|Whoever|Whose)\b{_STATEMENT}",
        "a sentence begins with a clause that has no head",
        "name the thing: 'Frames that wait are dropped', not 'What waits is dropped'",
    ),
    Pattern(
        rf"(?<=; )(?:what|who|whoever|whose)\b{_STATEMENT}",
        "a clause begins with a clause that has no head",
        "name the thing, or begin a new sentence",
    ),
    Pattern(
        rf"(?:, (?:so|but|for|then|that) |: )(?:who|whoever)\b{_STATEMENT}",
        "a clause has a person without a name as its subject",
        "name the role: 'a client that', 'the caller'",
    ),
    Pattern(
        r"\b(?:to|of|by|for|from|with|than) who\b",
        "a person without a name",
        "name the role: 'to a sender that has shown no key'",
    ),
    Pattern(
        r"(?<!here )(?<!here may )(?<!here can )(?<!here will )(?<!here would )"
        r"\b(?:is|are|was|were|be) no "
        r"(?!(?:longer|more|less|greater|fewer|slower|faster|worse|better|larger|smaller|later"
        r"|earlier|higher|lower|such)\b)",
        "the verb says yes and the object says no",
        "negate the verb: 'is not a barrier', not 'is no barrier'",
    ),
    Pattern(r" as[.;:)](?= |$)", "a clause ends with 'as'", "end it with its object"),
    Pattern(r"\bby words\b", "not said in English", "'words choose the parts'"),
    Pattern(r"\bmend(?:s|ed|ing)?\b", "software is not mended", "'fix'"),
    Pattern(r"\b(?:is|are|was|were) wanted\b", "nobody is said to want it", "'the target is'"),
    Pattern(
        r"\b(?:directly|right|immediately) behind\b"
        r"|\bbehind (?:a|the|every) (?:reset|create|join|JOIN|command)\b",
        "behind is a place, not a time",
        "'after'",
    ),
]

_GENERATED = re.compile(r"<!-- (?!.*run by)(?!end).*?-->.*?<!-- end.*?-->", re.DOTALL)
_LISTING = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_HEADER = re.compile(r"^\|.*\n(?=\|[-:| ]+$)", re.MULTILINE)
_ITEM = re.compile(r"^ *(?:[*-]|\d+\.) |^#+ .*$|\|", re.MULTILINE)


def paragraphs_of_a_document(text: str) -> Iterator[str]:
    """Yield paragraphs, items of lists and cells of tables, each on one line."""
    for cut in (_GENERATED, _LISTING, _HEADER):
        text = cut.sub("", text)
    yield from paragraphs(_ITEM.sub("\n\n", text))


def paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.strip():
            yield " ".join(paragraph.split())


def paragraphs_of_python(source: str) -> Iterator[str]:
    """Yield the paragraphs of docstrings and comments; an argument's text is one."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", ())
        for each in body if isinstance(body, list) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                text = str(each.value.value)
                yield from paragraphs(re.sub(r"^ *[\w*, ]+: |^ *[*-] ", "\n\n", text, flags=re.M))
    comments: list[str] = []
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string.lstrip("# "))
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            yield from paragraphs("\n".join(comments))
            comments = []


def paragraphs_of_cpp(source: str) -> Iterator[str]:
    for block in re.findall(r"(?:^ *//.*\n)+", source, re.MULTILINE):
        yield from paragraphs(re.sub(r"^ *///?<? ?", "", block, flags=re.MULTILINE))


READERS = {
    ".md": paragraphs_of_a_document,
    ".py": paragraphs_of_python,
    ".cpp": paragraphs_of_cpp,
    ".hpp": paragraphs_of_cpp,
}


def faults_in(paragraphs: Iterator[str]) -> list[str]:
    return [
        f"{paragraph[max(0, hit.start() - 30) : hit.end() + 40]!r}: {each.reason}; {each.instead}"
        for paragraph in paragraphs
        for each in PATTERNS
        for hit in re.finditer(each.found, paragraph)
    ]


def prose() -> list[Path]:
    """List the documents, and the product code that is read already."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "docs", "hdl", "drivers", "sim", "host"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    # The page is generated from the first lines of modules.
    return [
        ROOT / name for name in listed if Path(name).suffix in READERS and name != "docs/modules.md"
    ]


def test_every_sentence_has_its_subject_first() -> None:
    found = {
        str(path.relative_to(ROOT)): faults
        for path in prose()
        if (faults := faults_in(READERS[path.suffix](path.read_text(encoding="utf-8"))))
    }
    assert not found, "\n".join(f"{name}: {each}" for name in found for each in found[name])


@pytest.mark.parametrize(
    "text",
    [
        "What waits is told.",
        "It ends; who asks is answered.",
        "It ends, so whoever asks waits.",
        "It is answered to who has the key.",
        "A barrier is no collective.",
        "That is the time that it was begun as.",
        "This was mended.",
        "10 is wanted.",
        "A frame directly behind a JOIN.",
    ],
)
def test_a_sentence_of_each_kind_is_found(text) -> None:
    assert faults_in(paragraphs_of_a_document(text))
    assert faults_in(paragraphs_of_python(f'"""{text}"""\n'))
    assert faults_in(paragraphs_of_python(f"# {text}\npass\n"))
    assert faults_in(paragraphs_of_cpp(f"// {text}\n"))


@pytest.mark.parametrize(
    "text",
    [
        "What is a slot?",
        "There is no such job.",
        "It is no longer than a packet.",
        "The ranks, who wait, are told what to do.",
        "It stands behind a router; see what it does.",
        "| what | who |\n|---|---|\n| a rank | the leader |",
    ],
)
def test_plain_sentences_pass(text) -> None:
    assert not faults_in(paragraphs_of_a_document(text))
