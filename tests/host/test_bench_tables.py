"""The tables of `make bench-host`: what they say, and the documents that they get into."""

import re

from benchmarks.ranks import tables
from benchmarks.ranks.cases import CASES
from tests.support.checkout import ROOT


def host_rows():
    times = {"afflux_s": 0.02, "gloo_s": 0.08, "ratio": 4.0, "floor_s": 0.01, "read_floor_s": 0.005}
    rows = [
        {
            **times,
            "bench": "host",
            "case": case.name,
            "ranks": ranks,
            "afflux_cpu_s": 0.02,
            "gloo_cpu_s": 0.07,
            "wrong": 0,
            "same_bits": True,
        }
        for case in CASES
        for ranks in (2, 4)
    ]
    step = {**times, "bench": "host", "case": "ddp_step", "ranks": 2, "bucket_bytes": 25 << 20}
    return [*rows, {**step, "raw_s": 0.0195, "overhead": 0.0256, "same_bits": True}]


def packets_row():
    row = {"bench": "packets", "what": "into packets", "dtype": "float32"}
    return {
        **row,
        "instruction_set": "avx2",
        "moved": 2 * 10**8,
        "packets_cpu_s": 0.02,
        "cpu_ratio": 0.81,
    }


def test_the_table_says_what_was_wanted_and_reached():
    text = tables.text_table(host_rows())
    dense = r"100 MB dense +2 +20.0 ms +80.0 ms +4.00 +10.0 ms +2.00 .* 3.5 ✓ +–$"
    assert re.search(dense, text, re.MULTILINE)
    assert re.search(r"4 KB +4 .* 50 ✗", text)
    assert re.search(r"dense, reachable +2 .* 6 ✗ +≤ 2 ✓", text)
    assert re.search(r"blocks, reachable +2 .* 4.00 .* 8 ✗ +≤ 1.5 ✗", text)
    assert "(+2.6%, wanted < 5%)" in text


def test_a_quick_run_says_that_it_is_none_and_gets_into_no_document():
    rows = [{**row, "quick": True} for row in host_rows()]
    assert "these are not figures" in tables.text_table(rows)
    assert "these are not figures" not in tables.text_table(host_rows())
    for table in (tables.TABLES["speed"], tables.TABLES["ddp_step"]):
        assert len(table(rows).splitlines()) == 2


def test_documents_are_renewed():
    text = "a\n<!-- host figures: speed -->\nold\n<!-- end figures -->\nb\n"
    text += "<!-- figures: latency -->\nkept\n<!-- end figures -->\n"
    text += "<!-- host figures: packets -->\n<!-- end figures -->\n"
    about = {"measured_at": "2026-11-28T12:00:00+00:00", "commit": "0123abcd"}
    rows = [row | about for row in (*host_rows(), packets_row())]
    renewed = tables.render(text, rows)
    assert "| into packets | float32 | avx2 | 10.00 | 0.81 |" in renewed
    assert "old" not in renewed
    assert "| 100 MB dense | 2 | 20.0 ms | 80.0 ms | 4.00 | 10.0 ms | 2.00 |" in renewed
    # Targets are for those who work on it.
    assert not re.search(r"wanted|✓|✗|≤", renewed)
    steps = tables.TABLES["ddp_step"](host_rows())
    assert "| 2 | 25 MiB | 20.0 ms | 80.0 ms | 4.00 |" in steps
    assert "kept" in renewed
    assert tables.render(renewed, rows) == renewed


def test_the_document_has_places_for_all_tables():
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    names = re.findall(r"<!-- host figures: (\w+) -->", text)
    assert sorted(names) == sorted(tables.TABLES)
