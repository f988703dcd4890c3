"""`make bench-network`: it runs, sees wrong results, names what fails, and is bounded in time.

Nothing here looks at how fast anything is.
"""

import dataclasses
import json
import re
import socket
import sys
from typing import Any

import pytest
import torch

from afflux.commands.bench.inputs import Inputs
from afflux.commands.bench.registry import Row
from afflux.commands.bench.replay import SIZES
from benchmarks.network import __main__ as command
from benchmarks.network import decode, launch, shares, sparse_tables, tables, versions
from benchmarks.network.cases import PLANS, Case, Plan, Setup, plans_for
from benchmarks.network.launch import RanksEnded, run_ranks
from benchmarks.network.limits import gloo_limit_s, limit_s
from benchmarks.network.namespaces import missing
from benchmarks.network.rank import ROW_MARK
from benchmarks.network.shares_rank import BACKENDS, CASES
from benchmarks.network.workloads import SPARSE_PLANS, WORKLOADS
from benchmarks.report.figures import merge_rows, read_rows
from tests.support.checkout import ROOT
from tests.support.host.network import network
from tests.support.host.scripts import alive

GIGABIT = next(plan.setup for plan in PLANS if plan.setup.name == "gigabit")
DENSE = Case("dense", "100 MiB dense", 100 << 20)


@pytest.fixture
def permitted():
    if reason := missing():
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run(permitted, tmp_path, capfd):
    output = tmp_path / "network.json"
    wanted = ["gigabit:dense", "gigabit:1%_full", "gigabit:embedding", "ten_steps:fsdp2"]
    assert command.main(["--quick", "--output", str(output), "--only", *wanted]) == 0
    assert "these are not figures" in capfd.readouterr().out
    text = output.read_text(encoding="utf-8")
    rows = json.loads(text)["rows"]
    assert {f"{row['setup']}:{row['case']}" for row in rows} == set(wanted)
    assert {row["topology"] for row in rows} == {"auto", "udp", "tcp"}
    for row in rows:
        assert (row["failed"], row["wrong"], row["gloo_wrong"]) == ("", 0, 0), row
        assert row["hosts"] == 2
        assert row["overlap"] == ("full" if row["case"] == "1%_full" else "random")
        for key in ("afflux_s", "gloo_s", "ratio", "mtu", "rate_gbit", "afflux_cpu_s"):
            assert row[key] > 0
        assert len(row["afflux_runs_s"]) == len(row["gloo_runs_s"])
        # A step is computed alone, too.
        assert ("alone_s" in row) == (row["kind"] == "step")
        if row["topology"] == "udp":
            assert row["engine"] == "soft"
            assert row["aggregator_cpu_s"] > 0


@pytest.mark.slow
@pytest.mark.long
def test_jobs_share_a_wire(permitted, tmp_path):
    output = tmp_path / "network.json"
    assert shares.main(["--seconds", "0.2", "--output", str(output)]) == 0
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert [(row["backend"], row["beside"]) for row in rows] == [
        (backend, case) for backend in BACKENDS for case in CASES
    ]
    for row in rows:
        assert row["job_bytes_per_s"] > 0
        assert (row["other_bytes_per_s"] > 0) == (row["beside"] != "alone")
    assert "0." in tables.TABLES["shares"](rows)


@pytest.mark.slow
@pytest.mark.long
def test_a_version_beside_itself(permitted, tmp_path):
    output = tmp_path / "network.json"
    where = "2 hosts, 25 Gbit/s"
    arguments = ["--only", where, "--rounds", "1", "--run-s", "0.05", "--output", str(output)]
    assert versions.main([sys.executable, *arguments]) == 0
    rows = read_rows(output)
    assert [(row["where"], row["now_wrong"], row["before_wrong"]) for row in rows] == [
        (where, 0, 0) for _ in range(5)
    ]
    # Those of another network stay.
    arguments[1] = "2 hosts, 10 Gbit/s"
    assert versions.main([sys.executable, *arguments]) == 0
    assert len(read_rows(output)) == 2 * len(rows)


def test_another_version_must_be_there(permitted, capfd, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no Afflux here >&2\nexit 1\n", encoding="ascii")
    python.chmod(0o755)
    assert versions.main([str(python), "--output", str(tmp_path / "network.json")]) == 1
    assert "no Afflux here" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_decode_is_replayed_between_hosts(permitted, tmp_path):
    output = tmp_path / "network.json"
    assert decode.main(["--tokens", "2", "--output", str(output)]) == 0
    rows = read_rows(output)
    assert [row["bytes"] for row in rows] == 3 * list(SIZES)
    assert all(row["wrong"] == 0 and row["gloo_p50_s"] > 0 for row in rows)
    assert "2 hosts, 10 Gbit/s" in tables.TABLES["decode"](rows)


def test_a_step_shows_how_much_of_it_is_communication():
    row: Row = {"bench": "network", "setup": "gigabit", "case": "embedding", "topology": "auto"}
    row |= {"bytes": 25_600_000, "afflux_s": 0.1, "gloo_s": 0.4, "alone_s": 0.05, "ratio": 4.0}
    (line,) = tables.TABLES["steps"]([row]).splitlines()[2:]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:9] == [
        "no address given", "100.0 ms", "400.0 ms", "4.00", "50.0 ms", "50.0 ms", "350.0 ms", "7.00"
    ]  # fmt: skip
    assert "embedding" not in tables.TABLES["gigabit"]([row])


def test_what_is_measured_again_replaces_only_what_it_measures(tmp_path):
    output = tmp_path / "network.json"

    def row(setup, topology, number):
        row = {"bench": "network", "setup": setup, "case": "dense", "topology": topology}
        return {**row, "number": number}

    before = [row("gigabit", "auto", 1), row("gigabit", "udp", 2), row("jumbo", "auto", 3)]
    merge_rows(output, ["network"], before)
    kept = command._kept(output, [row("gigabit", "auto", 4)])
    assert [each["number"] for each in kept] == [2, 3, 4]


def test_ranks_that_hang_are_killed_and_named(permitted, monkeypatch):
    monkeypatch.setattr(launch, "_PROGRAM", ["-c", "import time; print('here'); time.sleep(60)"])
    monkeypatch.setattr(command, "CASE_LIMIT_S", 0.5)
    monkeypatch.setattr(command, "_MARGIN_S", 0.5)
    setup = dataclasses.replace(GIGABIT, hosts=1, topologies=("auto",))
    rows = command.run_plan(Plan(setup, (DENSE, Case("4", "", 4))), quick=True)
    reason = "the ranks said nothing for 1 s and were killed"
    assert [(row["case"], row["failed"]) for row in rows] == [("dense", reason), ("4", reason)]
    assert all(map(command.failed, rows))
    assert reason in tables.text_table(rows)


def test_what_is_known_is_kept_after_each_case(permitted, monkeypatch):
    found = {"gloo": {}, "auto": {"runs_s": [1.0], "seconds": 1.0, "wrong": 0, "calls": 1}}
    text = f"print({ROW_MARK + json.dumps(['', found])!r}, flush=True)"
    # One case is known, and then the ranks end.
    monkeypatch.setattr(launch, "_PROGRAM", ["-c", f"{text}; import sys; sys.exit('it is broken')"])
    setup = dataclasses.replace(GIGABIT, hosts=1, topologies=("auto",))
    kept: list[list[Any]] = []
    rows = command.run_plan(Plan(setup, (DENSE, Case("4", "", 4))), quick=True, keep=kept.append)
    assert [row["case"] for row in kept[0]] == ["dense"]
    assert [(row["case"], bool(row["failed"])) for row in rows] == [("dense", False), ("4", True)]


def test_a_rank_that_dies_takes_the_others_with_it(permitted, monkeypatch):
    pids = []
    text = "import os, sys, time; print('pid', os.getpid()); time.sleep(int(os.environ['RANK'])*60)"
    monkeypatch.setattr(launch, "_PROGRAM", ["-c", f"{text}; sys.exit('it is broken')"])

    def on_line(line):
        if line.startswith("pid"):
            pids.append(int(line.split()[1]))
        return True

    ended = pytest.raises(RanksEnded, match="rank 0 ended with 1")
    with network(hosts=3, aggregators=0) as made, ended:
        run_ranks(made, 1, [], on_line, limit_s=30.0)
    assert pids
    assert not any(map(alive, pids))


def test_full_overlap_is_the_same_blocks_at_all_ranks():
    for full in (True, False):
        inputs = Inputs(64 * 1000, torch.float32, 2, 0.1, full_overlap=full)
        parts = [inputs.piece(rank, slice(0, inputs.count)) for rank in range(2)]
        present = [part.view(-1, 64).any(dim=1) for part in parts]
        assert not torch.equal(*parts)
        assert bool((present[0] == present[1]).all()) == full
        assert 50 < int(present[0].sum()) < 150


def test_limits_are_those_of_headers():
    gloo = gloo_limit_s(GIGABIT, DENSE)
    assert gloo == pytest.approx(1.5 * DENSE.bytes * 1514 / 1448 * 8e-9)
    # Five blocks of 256 bytes with 128 of headers.
    assert limit_s(GIGABIT, DENSE, "udp") == pytest.approx(DENSE.bytes * 1.1 * 8e-9)
    assert gloo / limit_s(GIGABIT, DENSE, "auto") == pytest.approx(0.95, abs=0.005)
    jumbo = dataclasses.replace(GIGABIT, mtu=9000)
    found = gloo_limit_s(jumbo, DENSE) / limit_s(jumbo, DENSE, "auto")
    assert found == pytest.approx(0.977, abs=0.002)
    for density, wanted in ((0.1, 4.2), (0.01, 36.5)):
        case = dataclasses.replace(DENSE, density=density)
        assert gloo / limit_s(GIGABIT, case, "auto") == pytest.approx(wanted, rel=0.03)
        same = dataclasses.replace(case, overlap="full")
        assert limit_s(GIGABIT, same, "udp") == pytest.approx(density * DENSE.bytes * 1.1 * 8e-9)
    # One aggregator for eight hosts at a port as fast as theirs.
    crowded = dataclasses.replace(GIGABIT, hosts=8, aggregator_gbit=1.0)
    assert limit_s(crowded, DENSE, "udp") == pytest.approx(8 * limit_s(GIGABIT, DENSE, "udp"))
    assert limit_s(GIGABIT, dataclasses.replace(DENSE, bytes=4), "udp") == 0


def test_the_help_names_the_parts(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(plan.setup.name in said for plan in PLANS)


def test_names_of_cases_are_checked(capsys):
    assert plans_for(()) == list(PLANS)
    for words in (["nothing"], ["gigabit:nothing"]):
        with pytest.raises(SystemExit):
            command.main(["--only", *words])
    assert "the cases of gigabit are dense, 10%" in capsys.readouterr().err


def test_without_a_network_it_says_why(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "missing", lambda: "no network can be made: not here")
    assert command.main(["--output", str(tmp_path / "network.json")]) == 1
    assert "no network can be made: not here" in capsys.readouterr().err


def test_without_mpi_its_rows_say_why(monkeypatch):
    monkeypatch.setattr(command.mpi, "missing", lambda: "the package mpi4py is not installed")
    setup = Setup("mpi", "", with_mpi=True)
    (row,) = command.run_plan(Plan(setup, (Case("4K", "", 4096),)), quick=False)
    assert not command.failed(row)
    assert "not measured: the package" in tables.TABLES["mpi"]([row])


def test_tables_show_what_failed_and_what_was_wanted():
    def row_of(case, topology, **more):
        about = command._about(GIGABIT, case, False)
        return about | {"topology": topology, "failed": ""} | more

    times = {"afflux_s": 1.0, "gloo_s": 1.4, "afflux_cpu_s": 0.1, "gloo_cpu_s": 0.2, "wrong": 0}
    rows = [
        row_of(DENSE, "udp", **times, ratio=1.4, limit_s=0.9, aggregator_cpu_s=0.3),
        row_of(DENSE, "auto", **times, ratio=0.5, limit_s=0.9),
        row_of(Case("4", "4 bytes", 4), "udp", gloo_s=1e-4, failed="ValueError: no"),
    ]
    text = tables.text_table(rows)
    assert "1.35 ✓" in text
    assert "0.92 ✗" in text
    assert "gigabit: 4, udp: ValueError: no" in text
    table = tables.TABLES["gigabit"](rows)
    assert (
        "| 100 MiB dense | aggregator | 1000.0 ms | 1400.0 ms | 1.40 | 0.84 | 900.0 ms |" in table
    )
    assert "| 4 bytes (ValueError: no) | aggregator | – | 100 µs | – |" in table
    without, lossy = (
        row_of(DENSE, "udp", **{**times, "afflux_s": seconds}, ratio=1.0, setup=setup)
        for seconds, setup in ((0.9, "loss_0"), (1.0, "loss_0.1%"))
    )
    assert "0.8 of the speed without loss: 0.90 ✓" in tables.text_table([lossy, without])
    table = tables.TABLES["losses"]([without, lossy])
    assert "| 1 Gbit/s, 0.1 % loss: 100 MiB dense | aggregator | 1000.0 ms | 0.90 (" in table
    assert len(tables.TABLES["gigabit"]([{**row, "quick": True} for row in rows]).splitlines()) == 2


def test_the_document_has_places_for_all_tables():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for mark, made in (("network", tables.TABLES), ("sparse", sparse_tables.TABLES)):
        names = re.findall(rf"<!-- {mark} figures: (\w+) -->", text)
        assert sorted(names) == sorted(made)


def test_the_workloads_have_names_and_cases_of_their_own():
    setups = [plan.setup.name for plan in (*PLANS, *SPARSE_PLANS)]
    assert len(setups) == len(set(setups))
    for kind, workload in WORKLOADS.items():
        assert {case.kind for plan in workload.plans for case in plan.cases} == {kind}
    # No name of a table hides another.
    assert len(sparse_tables.TABLES) == sum(len(each.tables) for each in WORKLOADS.values())
    assert command._asked_for([], "sparse") == (list(SPARSE_PLANS), False)
    (only,) = command._asked_for(["coo:1%"], "network")[0]
    assert [case.name for case in only.cases] == ["1%"]


def test_other_contenders_have_times_and_wishes_of_their_own():
    setup = Setup("chosen", "chosen", topologies=("udp",), beside=("all_gather",))
    case = Case("1", "one", 1 << 20, wanted_beside={"all_gather": 1.5})
    values = {"runs_s": [1.0, 2.0], "seconds": 1.5, "wrong": 0, "calls": 1}
    found = {
        "udp": values | {"figures": {"exposed_s": 0.5}},
        "all_gather": values | {"runs_s": [2.0, 4.0], "seconds": 3.0},
        "gloo": values | {"runs_s": [6.0], "seconds": 6.0},
    }
    (row,) = command._rows(setup, case, False, found)
    assert (row["ratio"], row["all_gather_ratio"], row["afflux_exposed_s"]) == (4.0, 2.0, 0.5)
    plan = Plan(setup, (case,))
    text = tables.text_table([row], [plan])
    assert "1.5 of all gather: 2.00 ✓" in text
    header, _, line = tables.table_of([plan])([row]).splitlines()
    assert header.endswith("| all gather | times as fast as it |")
    assert line.endswith("| 3000.0 ms | 2.00 |")


DEFAULT_BUFFERS = """
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
before = udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
udp.setsockopt(socket.SOL_SOCKET, 33, 1 << 20)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
after = udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
assert before == after, (before, after)
assert udp.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
"""


def test_receive_buffers_stay_as_linux_makes_them(permitted):
    with network(hosts=1, aggregators=0) as made:
        python = [launch.sys.executable]
        plain = made.hosts[0].run(*python, "-c", DEFAULT_BUFFERS)
        assert "AssertionError" in plain.stderr
        kept = [*python, "-m", "benchmarks.network.default_buffers", *python]
        done = made.hosts[0].run(*kept, "-c", DEFAULT_BUFFERS)
        assert done.returncode == 0, done.stderr
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    before = udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, before // 4)
    assert udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < before
