"""The worked example in docs/protocol.md is what the golden model sends."""

import re

import pytest

from docs.generate.worked_example import example, insert
from tests.support.checkout import ROOT

PAGE = ROOT / "docs" / "protocol.md"


def test_document_holds_the_example():
    text = PAGE.read_text(encoding="utf-8")
    assert insert(text) == text


def test_example_shows_every_step():
    text = example()
    for packet in ("JOIN,", "JOINED,", "PROBE,", "MISSING,", "DATA, worker 1", "RESULT, worker 0"):
        assert f"```\n{packet}" in text
    # Fingerprints of both workers, side by side in the result.
    assert "lane  0 16 d5 b7 d6  16 d5 b7 d6  00 00 00 00" in text


def test_examples_show_every_encoding():
    text = example()
    direct, not_summed, maximum = re.split(r"^### 12\.\d ", text, flags=re.MULTILINE)[2:]
    # Both workers' words, one after the other.
    assert "        80 00 80 33  00 00 20 40  00 00 80 bf  00 00 00 80" in direct
    # A block with all bits set, and the operation after it.
    assert "lane  0 ff ff ff ff  ff ff ff ff  ff ff ff ff" in not_summed
    assert "ff ff ff ff  … lanes" in not_summed and "00 01 00\n" in not_summed
    # A sum of words opens the round of NUMBER_MAX.
    assert maximum.index(" 01 02 00") < maximum.index(" 41 02 00")


def test_a_changed_example_is_seen_and_mended():
    text = PAGE.read_text(encoding="utf-8")
    changed = text.replace("7f 02 00 00", "7e 02 00 00")
    assert changed != text
    assert insert(changed) == text


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError):
        insert("no markers\n<!-- end -->\n")
