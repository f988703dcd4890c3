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
    exact, non_finite, maximum = re.split(r"^### 12\.\d ", text, flags=re.MULTILINE)[2:]
    # Limbs on either side of a word's border, and class counts beside limbs of 0.
    assert "element 0: word  4 00 02 00 00  word  5 01 00 00 01" in exact
    assert "element 3: word 12 00 04 00 00" in exact
    # Counts of +Inf and of NaN, and the second visit of the row that holds the first.
    assert "lane  0 00 04 00 00  00 00 00 00" in non_finite
    assert "lane  1 01 00 00 00  00 00 00 00" in non_finite
    assert non_finite.count("RESULT, worker 0") == 3
    # The identity of MAX beside the fingerprint.
    assert "00 00 00 80  42 a0 d8 78" in maximum


def test_a_changed_example_is_seen_and_mended():
    text = PAGE.read_text(encoding="utf-8")
    changed = text.replace("7f 02 00 00", "7e 02 00 00")
    assert changed != text
    assert insert(changed) == text


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError):
        insert("no markers\n<!-- end -->\n")
