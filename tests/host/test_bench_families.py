"""The families of `make bench-host`: they run, see wrong results, and name what fails.

Nothing here looks at how fast anything is.
"""

import json
from types import SimpleNamespace

import pytest

from afflux.torchrun import RanksFailed
from benchmarks.ranks import family_run, family_tables
from benchmarks.ranks.__main__ import failed
from benchmarks.ranks.__main__ import main as bench_host
from benchmarks.ranks.collectives import NATIVE
from benchmarks.ranks.families import FAMILIES
from benchmarks.ranks.family_rank import ROW_MARK
from benchmarks.ranks.step_kinds import Training, blocks
from tests.support.checkout import ROOT
from tests.support.host.scripts import run_script

ONE_RANK = """
import json, sys, types
from pathlib import Path
import torch, torch.distributed as dist
from benchmarks.ranks import comparison, session
from benchmarks.report import sides
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
here = session.Session(Path("."), True)

def broken():
    raise ValueError("it is\\nbroken")

def side(wrong):
    return lambda: sides.Side(lambda: None, lambda: wrong)

makes = [
    {"afflux": broken, "gloo": side(0)},
    {"afflux": side(3), "gloo": side(0)},
]
for each in makes:
    print(json.dumps(comparison.compare(here, each, {"floor": lambda: None})))
strange = sides.Side(lambda: dist.all_reduce(torch.ones(1), group=here.group("gloo")), lambda: 0)
try:
    comparison.compare(here, {"afflux": lambda: strange, "gloo": side(0)}, {})
except AssertionError as error:
    print(json.dumps(str(error)))
dist.destroy_process_group()
"""


def row_of(case, **more):
    return {"bench": NATIVE.bench, "case": case, "ranks": 2, "failed": "", "quick": False, **more}


@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run_of_the_families(tmp_path, capfd):
    output = tmp_path / "host.json"
    wanted = ["collectives:all_gather", "collectives:all_reduce_int64", "collectives:barrier"]
    wanted += ["passed_on:gather", "passed_on:send", "steps", "subgroups"]
    assert bench_host(["--quick", "--ranks", "2", "--output", str(output), "--only", *wanted]) == 0
    assert "these are not figures" in capfd.readouterr().out
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    kinds = {row["what"] for row in rows}
    assert {"all_gather_coalesced", "barrier", "send_recv", "fsdp2", "subgroups"} <= kinds
    assert not {"broadcast", "all_to_all", "hsdp"} & kinds
    for row in rows:
        assert (row["failed"], row["wrong"], row["gloo_wrong"]) == ("", 0, 0), row
        assert row["afflux_s"] > 0
        assert row["gloo_s"] > 0
        assert row["ratio"] > 0
        assert len(row["afflux_runs_s"]) == len(row["gloo_runs_s"])


def test_one_that_raises_is_named_and_the_others_are_measured(tmp_path):
    found = run_script(ONE_RANK, tmp_path, environment={"PYTHONPATH": str(ROOT)})
    assert found.returncode == 0, found.stderr
    broken, wrong, strange = map(json.loads, found.stdout.splitlines())
    # As if torch had taken one mesh for another.
    assert strange == "afflux has called the groups of gloo"
    assert broken["failed"] == "afflux: ValueError: it is broken"
    assert "afflux_s" not in broken
    assert broken["gloo_s"] > 0
    assert broken["floor_s"] > 0
    assert failed(broken)
    # Counted before and after the runs.
    assert (wrong["wrong"], wrong["gloo_wrong"]) == (6, 0)
    assert failed(wrong)


def test_ranks_that_die_take_only_their_case_with_them(monkeypatch):
    started = []

    def run_module(module, ranks, arguments, environment, on_line, launcher=None):
        names = json.loads(arguments[arguments.index("--cases") + 1])
        started.append(names)
        for name in names:
            if name == "broadcast_256K":
                raise RanksFailed("ended\nFatal Python error: Segmentation fault\nand more")
            on_line(ROW_MARK + json.dumps({"case": name, "ranks": ranks, "failed": ""}) + "\n")

    monkeypatch.setattr(family_run, "run_module", run_module)
    rows: list[dict] = []
    family_run.run_family(NATIVE, 2, ["broadcast"], True, rows.append)
    assert started == [["broadcast_1K", "broadcast_256K", "broadcast_16M"], ["broadcast_16M"]]
    assert [row["failed"] for row in rows] == [
        "",
        "the ranks ended: Fatal Python error: Segmentation fault",
        "",
    ]


def test_without_mpi_its_rows_say_why(monkeypatch):
    monkeypatch.setattr(family_run.importlib.util, "find_spec", lambda name: None)
    rows: list[dict] = []
    family_run.run_family(FAMILIES["mpi"], 2, ["barrier"], True, rows.append)
    (row,) = rows
    assert row["not_measured"] == "the package mpi4py is not installed"
    assert not failed(row)
    assert "not measured: the package" in family_tables.family_table(FAMILIES["mpi"], rows)


def test_names_of_cases_are_checked(capsys):
    for words in (["nothing"], ["collectives:nothing"], ["4K:case"]):
        with pytest.raises(SystemExit):
            bench_host(["--only", *words])
    assert "no case of collectives begins with 'nothing'" in capsys.readouterr().err


def training(session, backend, seed):
    model = blocks(16, 2)

    def run(data):
        model(data).square().mean().backward()

    return Training(session, backend, model, run, seed, 16).side()


def test_a_step_with_other_gradients_is_seen():
    session = SimpleNamespace(references={})
    assert training(session, "gloo", seed=1).wrong() == 0
    assert training(session, "afflux", seed=1).wrong() == 0
    # Twice the sum, half of it, or another rank's.
    assert training(session, "afflux", seed=2).wrong() > 100
    session.references["gloo"] = [2 * change for change in session.references["gloo"]]
    assert training(session, "afflux", seed=1).wrong() > 100


def test_tables_show_what_failed_and_what_was_wanted():
    times = {"afflux_s": 1e-4, "gloo_s": 4e-4, "floor_s": 5e-5, "ratio": 4.0, "wrong": 0}
    rows = [
        row_of("broadcast_1K", **times),
        row_of("broadcast_16M", **{**times, "ratio": 1.2}),
        row_of("barrier", gloo_s=4e-4, failed="afflux: ValueError: no"),
    ]
    text = family_tables.family_table(NATIVE, rows)
    assert "3 ✓" in text
    assert "1.5 ✗" in text
    assert "failed: afflux: ValueError: no" in text
    table = family_tables.FAMILY_TABLES["collectives"](rows)
    assert "| broadcast, 1 KB | 2 | 100 µs | 400 µs | 4.00 | 50.0 µs | 2.00 |" in table
    assert "| barrier (failed: afflux: ValueError: no) | 2 | – | 400 µs | – | – | – |" in table
    assert not any(mark in table for mark in "✓✗")
    quick = [{**row, "quick": True} for row in rows]
    assert len(family_tables.FAMILY_TABLES["collectives"](quick).splitlines()) == 2
