"""The tables of `make bench`: what a line says, and that the document has a place for each."""

import re

from afflux.commands.bench.registry import Row
from benchmarks.report import document
from benchmarks.training.tables import TABLES
from tests.support.checkout import ROOT

LOOP = {"bench": "loop", "bytes": 4_000_000, "seconds": 0.5, "wrong": 0}
SENT = {"sent": 0.444, "received": 0.909, "least_sent": 0.407, "least_received": 0.871}
ROWS = [
    {**LOOP, "engine": "rtl", "cycles": 289_000, "cycles_per_s": 578_000.0},
    {**LOOP, "engine": "gloo", "cycles": 0},
    {"bench": "wire_bytes", "workers": 4, "density": 0.4, **SENT},
]
MEASURED = {"measured_at": "2026-11-28T12:00:00+00:00", "commit": "0123abcd"}
LINES = {
    "loop": [
        "| rtl, 512 bits | 4 MB | 0.500 s | 8 MB/s | 289 k | 0.58 M | 0 |",
        "| Gloo | 4 MB | 0.500 s | 8 MB/s |  |  | 0 |",
    ],
    "wire_bytes": ["| 4 | 0.4 | 0.444 | 0.909 | 0.407 | 0.871 |"],
}


def test_a_table_has_a_line_for_each_row():
    for name, lines in LINES.items():
        assert TABLES[name](ROWS).splitlines()[2:] == lines


def test_the_document_has_a_place_with_these_columns_for_each_table():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"<!-- training figures: (\w+) -->", page)) == sorted(TABLES)
    rows = [row | MEASURED for row in ROWS]
    renewed = document.render(page, "training figures", TABLES, rows)
    for name, table in TABLES.items():
        header = table([]).splitlines()[0]
        assert f"<!-- training figures: {name} -->\n{header}\n" in page
        assert "\n".join(LINES[name]) in renewed


def test_a_table_that_no_row_is_for_stays():
    page = "<!-- figures: kept -->\n| a |\n|---|\n| 1 |\n<!-- end figures -->"
    made = document.Table(
        "some",
        lambda rows: document.markdown(["a"], [[row["a"]] for row in rows]),
        ("hdl", "sim"),
        lambda row: row["a"] != "3",
    )
    rows: list[Row] = [{"bench": "other"}, {"bench": "some", "a": "3"}]
    rows.append({"bench": "some", "a": "4", "quick": True})
    assert document.render(page, "figures", {"kept": made}, rows) == page
    rows.append({"bench": "some", "a": "2", **MEASURED})
    renewed = document.render(page, "figures", {"kept": made}, rows)
    line = "Measured 2026-11-28 at `0123abcd`, code of `hdl`, `sim`."
    assert f"\n|---|\n| 2 |\n\n{line}\n<!-- end figures -->" in renewed
    # One line, however often it is renewed.
    assert document.render(renewed, "figures", {"kept": made}, rows) == renewed
