"""The benchmark command: it runs, and its JSON keeps its schema."""

import json
import re

import pytest

from benchmarks.report.columns import aligned
from benchmarks.training.__main__ import BENCHES, main


@pytest.mark.slow
@pytest.mark.long
def test_a_short_run(tmp_path, capfd):
    output = tmp_path / "engine.json"
    assert main(["--quick", "--output", str(output)]) == 0
    text = output.read_text(encoding="utf-8")
    result = json.loads(text)
    assert result["schema"] == 1
    assert set(result) == {"schema", "machine", "rows"}
    assert result["machine"]["cores"] >= 1
    assert not re.search(r'"/\w', text), "a path of this machine"
    rows = result["rows"]
    assert {row["bench"] for row in rows} == {bench.name for bench in BENCHES}
    for row in rows:
        if row["bench"] == "loop":
            assert row["wrong"] == 0
            assert row["seconds"] > 0
        elif row["bench"] == "wire_bytes":
            assert row["least_sent"] < row["sent"] < row["least_sent"] + 0.2
            assert row["least_received"] < row["received"] < row["least_received"] + 0.2
        else:
            assert row["rms_error"] >= 0
            assert 0 <= row["share_no_worse"] <= 1
    assert "per worker (MB/s)" in capfd.readouterr().out


def test_tables_are_aligned():
    lines = aligned("title", ["a", "number"], [["long name", "1"], ["b", "22"]]).splitlines()
    assert lines == [
        "title",
        "",
        "a          number",
        "─────────────────",
        "long name       1",
        "b              22",
    ]
