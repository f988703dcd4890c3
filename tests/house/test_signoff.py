"""The page on sign-off names commands that exist, and a reason for each waiver that it takes."""

import re

from docs.generate.source_tree import ROOT

TEXT = (ROOT / "docs" / "signoff.md").read_text()


def test_every_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", TEXT))
    assert len(named) > 8
    assert named - targets == set()


def test_every_waiver_has_a_reason_and_is_taken() -> None:
    before, _, waivers = TEXT.partition("## Waivers")
    reasons = dict(re.findall(r"^\| (W\d) \| .+? \| (.+) \|$", waivers, re.MULTILINE))
    taken = set(re.findall(r"\| (W\d) \|$", before, re.MULTILINE))
    assert taken == set(reasons)
    assert all(len(reason) > 40 for reason in reasons.values())


def test_every_row_has_a_state() -> None:
    rows = re.findall(r"^\| (?:[DV]\d|beyond) \| .+ \| (.+) \|$", TEXT, re.MULTILINE)
    known = re.compile(r"met|W\d|not (?:run|measured|applicable)")
    assert len(rows) > 25
    assert [row for row in rows if not known.match(row)] == []
