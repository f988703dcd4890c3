"""The table of faults in the documents is that of the campaign's record."""

import json

import pytest

from docs.generate import chaos_table
from tests.support.checkout import ROOT

TRIAL = {
    "fault": "rank killed",
    "beneath": "",
    "way": "shm",
    "outcome": "went on",
    "killed": 1,
    "judged": 1000,
    "bad": False,
    "notice_s": [0.25],
    "go_on_s": [],
    "at": "2026-11-30T01:00:00",
    "commit": "01234567",
}


def test_the_page_has_the_table_of_its_record():
    record = json.loads((ROOT / "docs" / chaos_table.RECORD).read_text(encoding="utf-8"))
    page = (ROOT / "docs" / chaos_table.PAGE).read_text(encoding="utf-8")
    assert chaos_table.render(page, record) == page, "make docs writes it again"
    record["trials"] += 1
    assert chaos_table.render(page, record) != page


def test_trials_are_counted_by_fault_with_the_worst_times():
    later = {**TRIAL, "at": "2026-11-30T02:00:00", "commit": "other", "notice_s": [0.5, 0.1]}
    ended = {**TRIAL, "way": "streams", "outcome": "WRONG", "bad": True}
    beneath = {**TRIAL, "beneath": "packets lost"}
    record = chaos_table.counted([later, TRIAL, ended, beneath])
    assert [record[key] for key in ("trials", "killed", "judged", "bad")] == [4, 4, 4000, 1]
    assert (record["at"], record["commit"]) == (TRIAL["at"], TRIAL["commit"])
    page = chaos_table.render("<!-- chaos figures: faults -->\n<!-- end figures -->\n", record)
    assert "| rank killed | shm 2, streams 1 | went on 2, WRONG 1 | 0.50 s |  |" in page
    assert "| any of these, while packets lost | shm 1 | went on 1 | 0.25 s |  |" in page
    assert "Measured 2026-11-30 at `01234567`, code of `host/afflux/group`" in page


def test_a_page_without_a_place_for_the_table_is_an_error():
    with pytest.raises(ValueError, match=r"reliability.md has 0 places for the table"):
        chaos_table.render("# Page\n", chaos_table.counted([TRIAL]))
