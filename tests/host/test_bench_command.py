"""`afflux bench` and `make bench-host`: they run, print what nccl-tests prints, and see wrong sums.

Nothing here looks at how fast anything is.
"""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from afflux.commands import cli
from afflux.commands.bench import command, nccl_format
from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.inputs import DTYPES
from afflux.torchrun import run_module
from afflux_hdl.progress_line import ProgressLine
from benchmarks.ranks.__main__ import main as bench_host
from benchmarks.ranks.cases import CASES
from tests.support.host.aggregators import closed_port
from tests.support.host.scripts import alive
from tests.support.terminal import Terminal

RESULT_LINE = re.compile(r"^ *\d+ +\d+ +\w+ +\w+ +-1( +[\d.]+ +[\d.]+ +[\d.]+ +\d+){2}$")


@pytest.mark.slow
def test_alone_it_starts_its_ranks(tmp_path, capfd):
    output, plot = tmp_path / "out.json", tmp_path / "out.svg"
    text = "bench all_reduce --ranks 2 -b 256 -e 64K -f 16 -n 2 --compare gloo --repeats 2 -S -M 1"
    assert cli.main([*text.split(), "-J", str(output), "--plot", str(plot)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1] == "# Collective test starting: all_reduce_perf"
    stamp = re.compile(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
    results = [line for line in lines if line and not line.startswith("#")]
    assert len(results) == 3
    for line in results:
        assert stamp.search(line)
        assert RESULT_LINE.match(stamp.sub("", line)), line
    assert "# Out of bounds values : 0 OK" in lines
    assert "<svg" in plot.read_text(encoding="utf-8")
    text = output.read_text(encoding="utf-8")
    assert not re.search(r'"/\w', text), "a path of this machine"
    result = json.loads(text)
    assert set(result) == {"schema", "machine", "rows"}
    assert [row["bytes"] for row in result["rows"]] == [256, 4096, 65536]
    for row in result["rows"]:
        assert row["ranks"] == 2
        assert (row["wrong"], row["out_of_place_wrong"], row["gloo_wrong"]) == (0, 0, 0)
        assert row["same_bits"] is True
        assert row["ratio"] == pytest.approx(row["gloo_s"] / row["afflux_s"])
        for name in ("afflux", "gloo", "floor", "read_floor", "out_of_place"):
            assert row[f"{name}_s"] > 0
            assert len(row[f"{name}_runs_s"]) == 2
            assert len(row[f"{name}_cpu_by_rank_s"]) == 2


@pytest.mark.slow
def test_each_collective_has_the_lines_of_its_program(capfd):
    cases = [
        [name, "-b", "1K", "-e", "64K", "-f", "64", "-n", "2", "--compare", "gloo"]
        for name in COLLECTIVES
    ]
    cases.append(["all_reduce", "-b", "1K", "-e", "1K", "-n", "2", "-d", "int64"])
    reachable = "all_reduce -b 1M -e 1M -n 2 -R 1 --density 0.3 --no-out-of-place"
    cases.append(reachable.split())
    (found, _), _ = run_module(
        "afflux.commands.bench.rank", 2, ["--cases", json.dumps(cases)], {}, print_line
    )
    rows = [row for each in found for row in each["rows"]]
    assert [row["what"] for row in rows] == [
        *(name for name in COLLECTIVES if name != "barrier" for _ in range(2)),
        "barrier",
        "all_reduce",
        "all_reduce",
    ]
    assert (rows[-1]["engine"], rows[-1]["way"], rows[-1]["reachable"]) == ("shm", "one_pass", True)
    for row in rows:
        assert (row["wrong"], row.get("gloo_wrong", 0)) == (0, 0)
        assert not row.get("out_of_place_wrong")
        assert row["same_bits"] is not False
    lines = capfd.readouterr().out.splitlines()
    for collective in COLLECTIVES.values():
        assert f"# Collective test concluded: {collective.program}" in lines
    results = [line for line in lines if re.match(r" +\d", line)]
    assert len(results) == len(rows)
    roots = {tuple(line.split()[3:5]) for line in results}
    assert roots == {("sum", "-1"), ("none", "0"), ("none", "-1")}


def print_line(line):
    print(line, end="")
    return True


@pytest.mark.slow
@pytest.mark.long
def test_without_shared_memory_nothing_is_reachable(capfd, monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "soft://")
    text = "bench --ranks 2 -b 4K -e 4K -n 1 -R 1"
    assert cli.main(text.split()) == 1
    assert "these ranks share no memory; the engine is soft" in capfd.readouterr().err


@pytest.mark.slow
def test_under_torchrun_it_is_a_rank(tmp_path):
    output = tmp_path / "out.json"
    text = "-m torch.distributed.run --standalone --nproc-per-node 2 -m afflux bench"
    text += " -b 100 -e 100 -n 1 -d all -o all --density 0.5 -T 60"
    run = subprocess.run(
        [sys.executable, *text.split(), "-J", str(output)],
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert {(row["dtype"], row["op"]) for row in rows} == {
        (dtype, op)
        for dtype in DTYPES
        for op in ("sum", "avg", "max", "min")
        if not (op == "avg" and dtype in ("int32", "int64"))
    }
    assert all(row["wrong"] == 0 and row["same_bits"] for row in rows)


@pytest.mark.slow
def test_told_to_stop_it_ends_its_ranks():
    words = ["-m", "afflux", "bench", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "1000000"]
    started = subprocess.Popen(
        [sys.executable, "-u", *words], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert started.stdout is not None
    ranks: list[int] = []
    try:
        while len(ranks) < 2:
            line = started.stdout.readline()
            assert line, "it ended"
            ranks += [int(pid) for pid in re.findall(r"#  Rank .* Pid +(\d+)", line)]
        started.terminate()
        assert started.wait(60) == 130
        for _ in range(500):
            if not any(map(alive, ranks)):
                break
            time.sleep(0.02)
        assert not any(map(alive, ranks))
    finally:
        started.kill()
        started.communicate()


@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run_of_the_table(tmp_path, capfd):
    output = tmp_path / "host.json"
    names = [*(case.name for case in CASES), "ddp_step"]
    wanted = ["--quick", "--ranks", "2", "--only", *names]
    assert bench_host([*wanted, "--output", str(output)]) == 0
    assert "times as fast" in capfd.readouterr().out
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert {"dense", "sparse", "256K", "4K", "ddp_step"} <= {row["case"] for row in rows}
    for row in rows:
        assert {"ranks", "bytes", "density", "reachable", "ratio"} <= set(row)
        assert row["afflux_s"] > 0
        assert row["gloo_s"] > 0
        assert row["same_bits"]
        if row["case"] != "ddp_step":
            assert row["floor_s"] > 0
            assert row["read_floor_s"] > 0
            assert (row["wrong"], row["gloo_wrong"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.long
def test_an_aggregator_that_is_not_there_is_one_line(capfd, monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", f"udp://127.0.0.1:{closed_port()}")
    assert cli.main(["bench", "--ranks", "2", "-b", "1K", "-e", "1K"]) == 1
    (line,) = [each for each in capfd.readouterr().err.splitlines() if each]
    assert line.startswith("afflux bench: cannot reach the control channel of the aggregator at ")


ROW = nccl_format.line(
    4096, 1024, "float", "sum", -1, 1.5, None, nccl_format.Column(0.0001, 0)
)  # fmt: skip


def test_a_terminal_shows_how_many_rows_have_come(capsys):
    terminal = Terminal()
    with ProgressLine("bench, 2 ranks", terminal.stream, every_s=0.01) as line:
        show = command._Shown(line, rows=2)
        show("# engine shm (auto)\n")
        terminal.read("bench, 2 ranks: 0 of 2 rows, 0 s")
        show(f"{ROW}\n")
        terminal.read("bench, 2 ranks: 1 of 2 rows, 0 s")
        show(f"{ROW}\n")
        show("   4096  more\n")
        terminal.read("bench, 2 ranks: 2 of 2 rows, 0 s")
    assert capsys.readouterr().out == f"# engine shm (auto)\n{ROW}\n{ROW}\n   4096  more\n"
    terminal.close()
