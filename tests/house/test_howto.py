"""The how-tos show files as they are, and commands that the command takes."""

import re
import shlex
from pathlib import Path

import pytest

from docs.generate.command_reference import parser_of
from docs.generate.source_tree import ROOT

PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
SHELL = re.compile(r"^ *```(?:sh|ini)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^|=|/|\s)afflux ((?:serve|info|counters|bench|device|flash) .*)")


def listings_of(page: Path) -> list[str]:
    return SHELL.findall(page.read_text(encoding="utf-8"))


def commands_of(page: Path) -> list[list[str]]:
    """Return the words of each `afflux` command of a page, without its name."""
    lines = "\n".join(listings_of(page)).splitlines()
    found = [COMMAND.search(line.partition("  #")[0]) for line in lines]
    return [shlex.split(each[1].strip()) for each in found if each]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_taken(page: Path) -> None:
    for words in commands_of(page):
        assert parser_of([]).parse_args(words), words


def test_a_command_that_is_not_taken_is_found_out(capsys) -> None:
    with pytest.raises(SystemExit):
        parser_of([]).parse_args(["serve", "soft", "--hosts", "10.0.0.9"])
    assert "--hosts" in capsys.readouterr().err


def test_commands_are_looked_at() -> None:
    assert len([words for page in PAGES for words in commands_of(page)]) >= 4


def test_the_board_is_the_file() -> None:
    source = ROOT / "hdl/afflux_hdl/boards/colorlight.py"
    text = (ROOT / "docs/howto/add_a_board.md").read_text(encoding="utf-8")
    assert f"```python\n{source.read_text(encoding='utf-8')}```" in text


def test_the_line_to_change_is_there_once() -> None:
    text = (ROOT / "docs/howto/change_the_engine.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"```python\n(.*)\n```", text)
    source = (ROOT / "hdl/afflux_hdl/engine/lane_alu.py").read_text(encoding="utf-8")
    assert source.count(line) == 1
