"""`make bench-engine`: its rows, its promises, and that it leaves others' rows alone."""

import json
import re
from pathlib import Path

import pytest

from afflux.commands.bench.registry import SCHEMA
from afflux_hdl.engine.engine import Engine
from benchmarks.gateware import tables
from benchmarks.gateware.__main__ import BENCHES, main
from benchmarks.report import stamp
from benchmarks.report.figures import merge_rows, read_rows

# "35 cycles at 512 bits, whatever its size", and "83 at 32 bits" if there are blocks.
WIDE, NARROW = (
    int(found[1])
    for text in (r"(\d+) cycles at 512 bits, whatever its size", r"(\d+) at 32 bits")
    if (found := re.search(text, Engine.__doc__ or "")) is not None
)
FLAT = (str, int, float, bool)


def check_promises(rows):
    """Check what the engine promises, row by row."""
    for row in rows:
        assert all(isinstance(value, FLAT) for value in row.values()), row
        if row["bench"] == "line_rate":
            assert row["receive_stalls"] == 0, row
            if row["traffic"] == "port":
                goal = {"16": 0.96, "5": 0.89}[row["blocks"]]
                assert row["payload_share_in"] > goal, row
                assert row["payload_share_out"] > goal, row
            else:
                assert row["beats_per_cycle"] == 1, row
            if row["traffic"] == "full":
                assert row["dropped"] == 0, row
                if row["results"] == "unicast":
                    assert row["beats_out_per_cycle"] > 0.95, row
                    if row["order"] == "back to back" and row["blocks"] != "mix":
                        assert row["beats_out_per_cycle"] > 0.995, row
        elif row["bench"] == "latency":
            narrow = row["bus_bits"] == 32 and row["blocks"] > 0
            assert row["latency_cycles"] == (NARROW if narrow else WIDE), row
            assert row["latency_cycles_max"] <= row["latency_cycles"] + 1, row
        else:
            assert row["receive_stalls"] == 0, row
            assert 1 <= row["cycles_of_ideal"] < 1.5, row


@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run(tmp_path, capfd):
    output = tmp_path / "engine.json"
    merge_rows(output, ["loop"], [{"bench": "loop", "bytes": 1}])
    (foreign,) = read_rows(output)
    assert main(["--quick", "--output", str(output)]) == 0
    rows = read_rows(output)
    assert rows[0] == foreign
    ours = rows[1:]
    assert {row["bench"] for row in ours} == {bench.name for bench in BENCHES}
    assert {row["bus_bits"] for row in ours} == {512, 32}
    check_promises(ours)
    assert "payload in (Gbit/s)" in capfd.readouterr().out
    # A second run replaces its rows.
    merge_rows(output, ["line_rate"], [])
    assert not any(row["bench"] == "line_rate" for row in read_rows(output))
    # Tables are made of such rows.
    merge_rows(output, ["line_rate"], [row for row in ours if row["bench"] == "line_rate"])
    text = tables.render("<!-- figures: latency -->\n<!-- end figures -->", ours)
    assert "| 512 |" in text


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("line_rate", {"receive_stalls": 1}),
        ("line_rate", {"beats_per_cycle": 0.999}),
        ("line_rate", {"beats_out_per_cycle": 0.99}),
        ("line_rate", {"dropped": 1}),
        ("latency", {"latency_cycles": 39}),
        ("zero_skip", {"cycles_of_ideal": 1.6}),
    ],
)
def test_the_promises_can_be_broken(name, change):
    rows = {
        "line_rate": {
            "bench": "line_rate",
            "traffic": "full",
            "results": "unicast",
            "order": "back to back",
            "blocks": "5",
            "receive_stalls": 0,
            "beats_per_cycle": 1.0,
            "beats_out_per_cycle": 1.0,
            "dropped": 0,
        },
        "latency": {
            "bench": "latency",
            "bus_bits": 512,
            "blocks": 1,
            "latency_cycles": 35,
            "latency_cycles_max": 36,
        },
        "zero_skip": {"bench": "zero_skip", "receive_stalls": 0, "cycles_of_ideal": 1.05},
    }
    check_promises(rows.values())
    with pytest.raises(AssertionError):
        check_promises([rows[name] | change])


def test_rows_have_the_date_of_who_measured_them(tmp_path: Path):
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"schema": SCHEMA, "rows": [{"bench": "undated"}]}))
    dated = {"bench": "old", "measured_at": "2026-11-21T04:00:00+00:00", "commit": "0123abcd"}
    merge_rows(path, ["old"], [dated])
    # A suite writes the rows that stay again, beside its new ones.
    merge_rows(path, ["new", "undated"], [*read_rows(path)[:1], {"bench": "new"}])
    old, undated, new = read_rows(path)
    assert old == dated
    assert undated == {"bench": "undated", "measured_at": "", "commit": ""}
    assert new == {"bench": "new", **stamp.now()}
    assert new["measured_at"] > dated["measured_at"]


def test_a_file_of_another_schema_is_not_kept(tmp_path: Path):
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"schema": 0, "rows": [{"bench": "old"}]}))
    assert read_rows(path) == []
    assert read_rows(tmp_path / "none.json") == []
