"""`make bench-network`, its families beside the contests with Gloo: one core, and costs of bytes.

Nothing here looks at how fast anything is.
"""

import json

import pytest

from benchmarks.network import __main__ as command
from benchmarks.network import cost_tables, costs, one_core, tables
from benchmarks.network.cases import PLANS
from benchmarks.network.launch import RanksEnded
from benchmarks.network.namespaces import missing


@pytest.fixture(scope="module")
def rows():
    return list(costs.measure(quick=True))


def test_costs_of_stages_and_threads(rows):
    assert [row["case"] for row in rows[:3]] == ["stages_5", "stages_13", "stages_16"]
    for row in rows:
        assert row["bench"] == "costs"
        assert row["quick"]
        assert costs.whole_of(row).worker > 0
        assert costs.brief(row).startswith(row["case"])
    assert costs.stages_of(rows[0]).memcpy > 0
    threads = [(row["threads"], row["lanes"], row["slots"]) for row in rows[3:]]
    assert threads[:4] == [(1, 5, 32), (2, 5, 32), (1, 16, 32), (2, 16, 32)]
    assert json.loads(json.dumps(rows)) == rows


def test_what_is_left_over_is_named(rows):
    figures = [row | {"quick": False} for row in rows]
    text = cost_tables.TABLES["worker_stages"](figures)
    lines = {line.split("|")[1].strip(): line for line in text.splitlines()}
    for name in ("scan", "kernel, sending", "the rest", "a whole all-reduce"):
        assert name in lines

    def first(name):
        return float(lines[name].split("|")[2])

    left = first("a whole all-reduce") - first("the stages together")
    assert first("the rest") == pytest.approx(left, abs=2e-3)
    assert "100 Gbit/s" in cost_tables.TABLES["ports"](figures)
    assert "5 blocks | 256" in cost_tables.TABLES["threads"](figures)


def test_quick_runs_are_no_figures(rows):
    assert cost_tables.TABLES["ports"](rows).count("\n") == 1
    assert "these are not figures" in cost_tables.text_tables(rows)


def test_where_the_counter_is_unknown_cycles_are_left_out(rows):
    unknown = [row | {"quick": False, "counter_hz": 0} for row in rows if "counter_hz" in row]
    assert "–" in cost_tables.TABLES["aggregator_stages"](unknown)


@pytest.mark.slow
@pytest.mark.long
def test_one_core_is_measured(tmp_path, capfd):
    if reason := missing():
        pytest.skip(reason)
    output = tmp_path / "network.json"
    assert command.main(["--quick", "--output", str(output), "--only", "one_core:veth_5"]) == 0
    (row,) = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert (row["bench"], row["case"], row["failed"], row["wrong"]) == (
        "one_core", "veth_5", "", 0,
    )  # fmt: skip
    for name in ("both_s_per_byte", "receive_s_per_byte", "both_calls_per_mb", "stage_memcpy_s"):
        assert row[name] > 0
    assert row["slots"] == 32
    assert "veth, MTU 1,500, 5 blocks" in capfd.readouterr().out
    # Measured again, it takes its own place.
    assert command.main(["--quick", "--output", str(output), "--only", "one_core:veth_5"]) == 0
    assert len(json.loads(output.read_text(encoding="utf-8"))["rows"]) == 1


def test_a_path_that_fails_says_why(monkeypatch):
    def ended(*_arguments):
        raise RanksEnded("rank 1 ended with 1: not today")

    monkeypatch.setattr(one_core, "_run", ended)
    row = one_core.run_path(one_core.PATHS[0], quick=True)
    assert one_core.failed(row)
    assert "not today" in one_core.brief(row)
    assert "not today" in cost_tables.TABLES["one_core"]([row | {"quick": False}])


def test_parts_are_asked_for_by_name(capsys):
    assert command._asked_for([]) == (list(PLANS), list(one_core.PATHS), True)
    plans, paths, with_costs = command._asked_for(["gigabit:dense", "one_core:veth_5"])
    assert [plan.setup.name for plan in plans] == ["gigabit"]
    assert ([path.name for path in paths], with_costs) == (["veth_5"], False)
    assert command._asked_for(["costs"]) == ([], [], True)
    assert command._asked_for(["one_core"])[1] == list(one_core.PATHS)
    for words in (["one_core:nothing"], ["costs:nothing"]):
        with pytest.raises(SystemExit):
            command.main(["--only", *words])
    said = capsys.readouterr().err
    assert "the cases of one_core are loopback_5" in said
    assert "costs has no cases" in said


def test_their_tables_are_the_networks():
    assert cost_tables.TABLES.keys() < tables.TABLES.keys()
