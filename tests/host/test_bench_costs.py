"""`make bench-network`, its family beside the contests with Gloo: costs of bytes.

Nothing here looks at how fast anything is.
"""

import json

import pytest

from benchmarks.network import __main__ as command
from benchmarks.network import cost_tables, costs, tables
from benchmarks.network.cases import PLANS


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


def test_parts_are_asked_for_by_name(capsys):
    assert command._asked_for([]) == (list(PLANS), True)
    plans, with_costs = command._asked_for(["gigabit:dense", "costs"])
    assert ([plan.setup.name for plan in plans], with_costs) == (["gigabit"], True)
    assert command._asked_for(["costs"]) == ([], True)
    with pytest.raises(SystemExit):
        command.main(["--only", "costs:nothing"])
    assert "costs has no cases" in capsys.readouterr().err


def test_their_tables_are_the_networks():
    assert cost_tables.TABLES.keys() < tables.TABLES.keys()
