"""The reference of the command `afflux`, from its own parsers.

`python -m docs.generate.command_reference docs/commands.md` writes the text between
`<!-- commands -->` and `<!-- end -->`. A test compares.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from afflux.commands.parser import build_parser

__all__ = ["parser_of", "render"]

_SUBCOMMANDS = argparse._SubParsersAction
_HIDDEN = (argparse._HelpAction, _SUBCOMMANDS)


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    """Return the parser of a subcommand, or of one below it.

    Raises:
        KeyError: There is no such subcommand.
    """
    parser = build_parser()
    for word in words:
        (below,) = (each for each in parser._actions if isinstance(each, _SUBCOMMANDS))
        parser = below.choices[word]
    return parser


def render(text: str) -> str:
    """Return `text` with the reference renewed."""
    chapters = "\n".join(_chapters())
    section = f"<!-- commands -->\n\n{chapters}\n<!-- end -->"
    return re.sub(r"<!-- commands -->.*<!-- end -->", lambda _: section, text, flags=re.DOTALL)


def _chapters() -> Iterator[str]:
    for name, about in _subcommands(parser_of([])):
        yield from _chapter(parser_of([name]), about)


def _parsers_below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, _SUBCOMMANDS):
            yield from action.choices.values()


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the name of each subcommand, and what it is for."""
    for action in parser._actions:
        if isinstance(action, _SUBCOMMANDS):
            for choice in action._choices_actions:
                yield choice.dest, choice.help or ""


def _chapter(parser: argparse.ArgumentParser, about: str, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n"
    yield f"{about[:1].upper()}{about[1:].removesuffix('.')}.\n"
    yield from _tables(parser)
    below = list(_parsers_below(parser))
    # Options that all of its subcommands have are there once.
    shared = [each for each in _tables(below[0]) if _in_all(each, below)] if below else []
    if shared:
        yield "All of these take:\n"
        yield from shared
    helps = dict(_subcommands(parser))
    for each in below:
        chapter = _chapter(each, helps[each.prog.rpartition(" ")[2]], level + 1)
        yield from (part for part in chapter if part not in shared)


def _in_all(table: str, parsers: Iterable[argparse.ArgumentParser]) -> bool:
    return all(table in _tables(parser) for parser in parsers)


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:
        rows = [_row(parser, each) for each in group._group_actions if _is_shown(each)]
        if rows:
            title = (group.title or "options").replace("positional arguments", "arguments")
            yield "\n".join([f"| {title} | |", "|---|---|", *rows, ""])


def _is_shown(action: argparse.Action) -> bool:
    return not isinstance(action, _HIDDEN) and action.help is not argparse.SUPPRESS


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    value = _value(action)
    names = [" ".join(filter(None, [name, value])) for name in action.option_strings] or [value]
    words = dict(vars(action), prog=parser.prog)
    meaning = (action.help or "") % words
    if action.choices is not None:
        choices = ", ".join(f"`{each}`" for each in action.choices)
        meaning = f"{meaning}: {choices}" if meaning else f"one of {choices}"
    required = ", required" if action.required and action.option_strings else ""
    cells = [", ".join(f"`{name}`" for name in names) + required, meaning]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _value(action: argparse.Action) -> str:
    """Return how the action's value is written; empty if it takes none."""
    if action.nargs == 0:
        return ""
    name = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    many = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}.get(str(action.nargs), "{}")
    return many.format(name if isinstance(name, str) else " ".join(name))


def main() -> None:
    """Rewrite the document that the first argument names."""
    path = Path(sys.argv[1])
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
