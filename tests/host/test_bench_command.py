"""`afflux bench` and `make bench-host`: they run, print what nccl-tests prints, and see wrong sums.

Nothing here looks at how fast anything is.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

import pytest
import torch

from afflux.commands import cli
from afflux.commands.bench import command, mpi_launch, nccl_format
from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.collectives import prepare, result_inputs
from afflux.commands.bench.cpu_time import CpuTimer
from afflux.commands.bench.expected import wrong_elements
from afflux.commands.bench.inputs import BLOCK, DTYPES, PIECE, Inputs
from afflux.commands.bench.options import add_arguments, read_options
from afflux.commands.bench.sizes import parse_size, sweep
from afflux.torchrun import run_module
from afflux_sim.golden import numbers as golden_numbers
from benchmarks.ranks import tables
from benchmarks.ranks.__main__ import main as bench_host
from benchmarks.ranks.cases import CASES
from tests.support.checkout import ROOT
from tests.support.host.aggregators import closed_port
from tests.support.host.scripts import alive

RESULT_LINE = re.compile(r"^ *\d+ +\d+ +\w+ +\w+ +-1( +[\d.]+ +[\d.]+ +[\d.]+ +\d+){2}$")


def options_of(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return read_options(parser, parser.parse_args(words))


# Sizes and options.


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("4K", 4096), ("1.5k", 1536), ("32M", 32 << 20), ("1G", 1 << 30)]
)
def test_sizes_are_in_powers_of_1024(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "M4", "-1", "0", "nan", "inf", "1T"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError):
        parse_size(text)


def test_a_sweep_multiplies_or_adds():
    assert sweep(8, 128, 1 << 20, 4) == (8, 32, 128)
    assert sweep(8, 40, 16, 1) == (8, 24, 40)
    with pytest.raises(ValueError, match="above"):
        sweep(9, 8, 1, 2)
    with pytest.raises(ValueError, match="1000"):
        sweep(8, 1 << 30, 8, 1)


def test_the_defaults_are_those_of_nccl_tests():
    options = options_of()
    assert options.sizes == (32 << 20,)
    assert (options.iterations, options.warmup, options.checks) == (20, 1, 1)
    assert (options.dtypes, options.ops, options.average) == (("float",), ("sum",), 1)
    assert options.repeats == 1
    assert options_of("--compare", "gloo").repeats > 1


def test_options_of_nccl_tests_are_understood():
    text = "-b 8 -e 128M -f 2 -n 5 -w 2 -c 3 -o max -d bfloat16 -a 3 -N 2 -R 1 -S -M 1 -T 9"
    options = options_of(*text.split())
    assert options.sizes[0] == 8
    assert options.sizes[-1] == 128 << 20
    assert (options.iterations, options.warmup, options.checks) == (5, 2, 3)
    assert (options.dtypes, options.ops) == (("bfloat16",), ("max",))
    assert (options.average, options.cycles, options.reachable) == (3, 2, True)
    assert (options.timestamps, options.memory, options.timeout_s) == (True, True, 9.0)
    assert set(options_of("-d", "all", "-o", "all").dtypes) == set(DTYPES)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-g 8", "use --ranks"),
        ("--nthreads 2", "set the number of ranks"),
        ("-C 1", "processor time"),
        ("-G 4", "CUDA graphs"),
        ("-z 1", "when it is over"),
        ("-r 3", "no root"),
        ("-o prod", "Gloo"),
        ("-d double", "Gloo"),
        ("-d int32 -o avg", "averages of integers"),
        ("broadcast -o max", "reduces nothing"),
        ("all_gather --density 0.5", "reduces nothing"),
        ("alltoall", "not one of all_reduce"),
        ("-b 2M -e 1M", "above"),
        ("--density 0", "share"),
        ("--compare nccl", "not one of gloo, mpi"),
        ("-R 2", "one kind"),
    ],
)
def test_what_does_not_apply_is_refused_with_the_reason(words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        options_of(*words.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words", ["-g 1", "-t 1", "-m 1", "-p 0", "-z 0", "-G 0"])
def test_what_changes_nothing_is_let_through(words):
    assert options_of(*words.split()) == options_of()


def test_a_missing_mpi4py_is_named(capsys, monkeypatch):
    monkeypatch.setattr(mpi_launch.importlib.util, "find_spec", lambda name: None)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit):
        cli.main(["bench", "--ranks", "2", "--compare", "mpi"])
    assert "mpi4py is not installed" in capsys.readouterr().err


def test_ranks_within_ranks_are_refused(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(SystemExit):
        cli.main(["bench", "--ranks", "2"])
    assert "already one of 4 ranks" in capsys.readouterr().err


def test_a_file_in_no_folder_is_refused_before_the_run(capsys, tmp_path):
    with pytest.raises(SystemExit):
        cli.main(["bench", "-J", str(tmp_path / "missing" / "out.json")])
    assert "its folder does not exist" in capsys.readouterr().err


# The format.


def test_a_line_is_that_of_nccl_tests():
    column = nccl_format.Column(0.334460, 0)
    expected = (
        "    26214400       6553600     float     sum      -1   334460    0.08    0.12       0"
        "   334460    0.08    0.12       0"
    )
    assert nccl_format.line(26214400, 6553600, "float", "sum", -1, 1.5, column, column) == expected
    unchecked = nccl_format.line(
        26214400, 6553600, "float", "sum", -1, 1.5, None, nccl_format.Column(0.33446, None)
    )
    assert len(unchecked) == len(expected)
    assert unchecked.endswith("N/A")


def test_bandwidths_are_defined_as_by_nccl_tests():
    assert nccl_format.algorithm_bandwidth(10**9, 0.5) == 2.0
    factors = {name: each.bus_factor(8) for name, each in COLLECTIVES.items()}
    assert factors["all_reduce"] == 1.75
    assert factors["all_gather"] == factors["reduce_scatter"] == 0.875
    assert factors["broadcast"] == 1
    assert nccl_format.bus_bandwidth(10**9, 0.5, factors["all_reduce"]) == 3.5


def test_sizes_and_counts_are_those_of_nccl_tests():
    # The size of the larger buffer; the count of one rank's part, in steps of 16 bytes.
    gather = COLLECTIVES["all_gather"]
    assert gather.count(1 << 20, 4, 4) == 65536
    assert gather.bytes(65536, 4, 4) == 1 << 20
    assert gather.count(1000, 4, 3) == 80
    assert gather.bytes(80, 4, 3) == 960
    assert COLLECTIVES["all_reduce"].count(1000, 4, 3) == 250
    assert COLLECTIVES["barrier"].count(1000, 4, 3) == 0


def test_wrong_elements_end_as_failed():
    assert nccl_format.summary(0, [1.0, 3.0], "broadcast_perf").splitlines() == [
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 2 ",
        "#",
        "# Collective test concluded: broadcast_perf",
    ]
    assert "3 FAILED" in nccl_format.summary(3, [], "all_reduce_perf")
    right = {"wrong": 0, "out_of_place_wrong": None, "same_bits": True}
    assert not command.failed([right])
    assert command.failed([right, {**right, "wrong": 1}])
    assert command.failed([{**right, "out_of_place_wrong": 1}])
    assert command.failed([{**right, "same_bits": False}])
    assert command.failed([{**right, "out_of_place_same_bits": False}])


# The data, and the sums that they are checked against.


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=list(DTYPES))
def test_inputs_are_the_same_for_whoever_asks(dtype):
    inputs = Inputs(PIECE + 100, dtype, ranks=3, density=0.1)
    filled = torch.empty(inputs.count, dtype=dtype)
    inputs.fill(1, filled)
    pieces = list(inputs.pieces())
    assert [piece.stop - piece.start for piece in pieces] == [PIECE, 100]
    for piece in pieces:
        assert torch.equal(filled[piece], inputs.piece(1, piece))
    assert not torch.equal(inputs.piece(0, pieces[0]), inputs.piece(1, pieces[0]))
    whole = filled[:PIECE].view(-1, BLOCK)
    share = (whole != 0).any(dim=1).double().mean().item()
    assert 0.08 < share < 0.12
    # A block is zero or, but for a few values that happen to be 0, not.
    assert ((whole != 0).sum(dim=1) > BLOCK // 2).double().mean().item() == share


def test_sums_in_place_stop_before_they_overflow():
    for dtype in DTYPES.values():
        for ranks in (2, 3, 8, 64):
            inputs = Inputs(256, dtype, ranks)
            pieces = [inputs.piece(rank, slice(0, 256)).double() for rank in range(ranks)]
            tensor = torch.stack(pieces).sum(0)
            for _ in range(inputs.calls_in_place("sum") - 1):
                tensor = tensor * ranks
            about = torch.finfo if dtype.is_floating_point else torch.iinfo
            most = about(dtype).max
            assert tensor.abs().max() <= most, (dtype, ranks)
    assert Inputs(256, torch.float32, 8).calls_in_place("avg") == 0
    assert Inputs(256, torch.float32, 8, density=0.5).calls_in_place("avg") == 1


def golden_sum(inputs, op):
    names = {torch.float32: "float32", torch.float16: "float16", torch.int32: "int32"}
    where = slice(0, inputs.count)
    parts = [inputs.piece(rank, where).numpy() for rank in range(inputs.ranks)]
    return torch.from_numpy(golden_numbers.all_reduce(parts, names[inputs.dtype], op).copy())


@pytest.mark.parametrize("op", ["sum", "avg", "max", "min"])
@pytest.mark.parametrize("count", [1, 70, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_the_check_lets_right_results_through(dtype, count, op):
    if dtype == torch.int32 and op == "avg":
        return
    inputs = Inputs(count, dtype, ranks=3)
    right = golden_sum(inputs, op)
    assert wrong_elements(right, inputs, op, of_engine=True) == 0


def test_the_check_sees_one_bit_where_the_golden_model_looks():
    inputs = Inputs(9000, torch.float32, ranks=3)
    right = golden_sum(inputs, "sum")
    assert wrong_elements(right, inputs, "sum", of_engine=True) == 0
    for place in (0, 4095, 8999):
        wrong = right.clone()
        wrong.view(torch.int32)[place] += 1
        assert wrong_elements(wrong, inputs, "sum", of_engine=True) == 1, place


@pytest.mark.parametrize(
    "spoil",
    [
        lambda part, x: x + part,  # counted twice
        lambda part, x: x - part,  # left out
        lambda part, x: torch.zeros_like(x),
        lambda part, x: torch.full_like(x, float("nan")),
        lambda part, x: torch.full_like(x, float("inf")),
        lambda part, x: -x,
    ],
    ids=["twice", "lost", "zero", "nan", "inf", "negative"],
)
def test_the_check_sees_wrong_sums_between_the_ends(spoil):
    inputs = Inputs(20_000, torch.float32, ranks=4)
    middle = slice(9_984, 9_984 + BLOCK)
    wrong = golden_sum(inputs, "sum")
    part = inputs.piece(2, slice(0, inputs.count))[middle]
    wrong[middle] = spoil(part, wrong[middle])
    assert wrong_elements(wrong, inputs, "sum", of_engine=True) >= BLOCK - 1


def test_the_check_sees_what_a_zero_block_must_not_hold():
    inputs = Inputs(20_000, torch.float32, ranks=2, density=0.01)
    right = golden_sum(inputs, "sum")
    zero = int((right.view(-1)[9_984:10_048] == 0).all())
    assert zero, "chosen so that it is"
    right[10_000] = 1e-40
    assert wrong_elements(right, inputs, "sum", of_engine=True) == 1


def test_the_check_of_others_knows_their_rounding():
    inputs = Inputs(5000, torch.float32, ranks=8)
    where = slice(0, inputs.count)
    total = inputs.piece(0, where)
    for rank in range(1, 8):
        total = total + inputs.piece(rank, where)
    assert wrong_elements(total, inputs, "sum", of_engine=False) == 0
    assert wrong_elements(total * (1 + 1e-4), inputs, "sum", of_engine=False) > 4900


class Idle:
    """A contender whose calls do nothing, as every rank of a broken one's would."""

    name = "idle"
    of_engine = True
    empty = staticmethod(lambda count, dtype: torch.empty(count, dtype=dtype))
    all_reduce = broadcast = all_gather = reduce_scatter = staticmethod(lambda *_: None)
    barrier = staticmethod(lambda: None)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "reduce_scatter"])
def test_a_collective_that_does_nothing_is_seen(name, in_place):
    inputs = Inputs(1000, torch.float32, ranks=3)
    trial = prepare(COLLECTIVES[name], Idle(), inputs, "sum", 1, in_place)
    assert trial.wrong() > 900


def test_parts_of_a_reduce_scatter_are_checked():
    inputs = Inputs(128, torch.int64, ranks=2)
    trial = prepare(COLLECTIVES["reduce_scatter"], Idle(), inputs, "sum", 1, in_place=False)
    parts = [result_inputs(inputs, 1).piece(rank, slice(0, 128)) for rank in range(2)]
    trial.restore()
    assert torch.equal(trial.source[128:], parts[1])
    trial.result.copy_(parts[0] + parts[1])
    assert trial.check() == 0
    trial.result[5] += 1 << 40
    assert trial.check() == 1


def test_processor_time_counts_children():
    timer = CpuTimer()
    timer.prepare()
    timer.start()
    busy = subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\ninput()"],
        stdin=subprocess.PIPE,
    )
    try:
        for _ in range(500):
            if timer.stop() > 0.3:
                break
            with pytest.raises(subprocess.TimeoutExpired):
                busy.wait(0.02)
        # Of this process a little, of the child most.
        assert timer.stop() > 0.3
    finally:
        busy.communicate()


# Runs.


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
    text = "-m torch.distributed.run --standalone --nproc-per-node 3 -m afflux bench"
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


# Tables of what was measured.


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


def codec_row():
    row = {"bench": "codec", "what": "into packets", "dtype": "float32", "instruction_set": "avx2"}
    return {**row, "moved": 2 * 10**8, "codec_cpu_s": 0.02, "cpu_ratio": 0.81}


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
    text += "<!-- host figures: codec -->\n<!-- end figures -->\n"
    renewed = tables.render(text, [*host_rows(), codec_row()])
    assert "| into packets | float32 | avx2 | 10.00 | 0.81 |" in renewed
    assert "old" not in renewed
    assert "| 100 MB dense | 2 | 20.0 ms | 80.0 ms | 4.00 | 10.0 ms | 2.00 |" in renewed
    # Targets are for those who work on it.
    assert not re.search(r"wanted|✓|✗|≤", renewed)
    steps = tables.TABLES["ddp_step"](host_rows())
    assert "| 2 | 25 MiB | 20.0 ms | 80.0 ms | 4.00 |" in steps
    assert "kept" in renewed
    assert tables.render(renewed, [*host_rows(), codec_row()]) == renewed


def test_the_document_has_places_for_all_tables():
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    names = re.findall(r"<!-- host figures: (\w+) -->", text)
    assert sorted(names) == sorted(tables.TABLES)


def test_an_aggregator_that_is_not_there_is_one_line(capfd, monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", f"udp://127.0.0.1:{closed_port()}")
    assert cli.main(["bench", "--ranks", "2", "-b", "1K", "-e", "1K"]) == 1
    (line,) = [each for each in capfd.readouterr().err.splitlines() if each]
    assert line.startswith("afflux bench: cannot reach the control channel of the aggregator at ")
