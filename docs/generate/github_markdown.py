"""Makes the site read Markdown as GitHub does: an extension of Python-Markdown.

The pages are written for GitHub, which reads CommonMark: the contents of a list's item are indented
by the width of its marker, and a table or a list may follow a line of text or a comment directly.
Python-Markdown needs four columns for each level there, and blank lines; `rewritten` adds both.
"""

import re
from collections.abc import Callable, Iterable

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

__all__ = ["anchors", "makeExtension", "rewritten"]

_ITEM = re.compile(r"([*+-]|\d{1,9}[.)]) +(?=\S)")
_FENCE = re.compile(r"(```+|~~~+)")
_COMMENT = re.compile(r"<!--.*-->$")
_LEVEL = 4


def anchors() -> Callable[[str, str], str]:
    """Return what makes an anchor of a heading, as GitHub does: the site's settings name this."""
    return _anchor


def _anchor(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def rewritten(lines: Iterable[str]) -> list[str]:
    """Return lines of CommonMark as Python-Markdown reads them with the same meaning."""
    out: list[str] = []
    items: list[int] = []  # the columns at which the contents of open items begin
    fence = ""
    before = "blank"
    for line in lines:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        kind = "listing" if fence else _kind(text)
        if kind == "item" and before == "text" and not items and re.match(r"(?!1\D)\d", text):
            # A number other than 1 within a paragraph does not begin a list.
            kind = "text"
        # A paragraph's next line belongs to it, wherever it begins.
        goes_on = kind == "text" and before in ("text", "item")
        popped = 0
        while items and text and not goes_on and indent < items[-1]:
            popped = items.pop()
        inside = indent - (items[-1] if items else 0)
        if inside >= _LEVEL and before not in ("text", "item") and kind != "listing":
            kind = "code"
        if _needs_blank(before, kind, is_sibling=popped > 0):
            out.append("")
        if kind == "item" and (marker := _ITEM.match(text)):
            rest = text[marker.end() :]
            out.append(f"{' ' * _LEVEL * len(items)}{marker[1]:<{_LEVEL}}{rest}")
            items.append(indent + marker.end())
        else:
            column = 0 if goes_on else max(inside, 0)
            out.append((" " * (_LEVEL * len(items) + column) + text) if text else "")
        if fence:
            # Only a line of the same characters, and nothing behind them, ends it.
            fence = "" if text.startswith(fence) and not text.strip(fence[0]).strip() else fence
            kind = "listing" if fence else "fence"
        elif kind == "fence":
            fence = _FENCE.match(text)[1]  # type: ignore[index]
        # Lines behind an item's first are part of its paragraph.
        before = "item" if goes_on and before == "item" else kind
    return out


def _kind(text: str) -> str:
    if not text:
        return "blank"
    if text.startswith("|"):
        return "table"
    for kind, pattern in (("item", _ITEM), ("fence", _FENCE), ("comment", _COMMENT)):
        if pattern.match(text):
            return kind
    return "heading" if text.startswith("#") else "text"


def _needs_blank(before: str, kind: str, *, is_sibling: bool) -> bool:
    if before == "blank" or kind in ("blank", "listing", "code"):
        return False
    if kind == "item":
        return before in ("text", "table", "comment") and not is_sibling
    if kind in ("table", "comment") or before in ("table", "comment"):
        return kind != before
    return False


class _Rewritten(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return rewritten(lines)


class _GitHubMarkdown(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # Before every other, which look for listings and HTML (their priorities end at 30).
        md.preprocessors.register(_Rewritten(md), "github_markdown", 100)


def makeExtension(**settings: object) -> Extension:
    """Return the extension; Markdown calls this."""
    return _GitHubMarkdown(**settings)
