"""The worked example in docs/protocol.md is what the golden model sends."""

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


def test_a_changed_example_is_seen_and_mended():
    text = PAGE.read_text(encoding="utf-8")
    changed = text.replace("7f 02 00 00", "7e 02 00 00")
    assert changed != text
    assert insert(changed) == text


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError):
        insert("no markers\n<!-- end -->\n")
