"""What `afflux bench` takes, and the table that it prints: those of nccl-tests."""

import argparse

import pytest

from afflux.commands import cli
from afflux.commands.bench import command, mpi_launch, nccl_format
from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.inputs import DTYPES
from afflux.commands.bench.options import add_arguments, read_options
from afflux.commands.bench.sizes import parse_size, sweep


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


def test_a_cycle_has_all_cases_but_averages_of_integers():
    options = options_of("-b", "1K", "-e", "4K", "-f", "2", "-d", "all", "-o", "all")
    assert len(options.cases) == 3 * (5 * 4 - 2)
    assert options.cases[:4] == [
        *(("sum", "float", size) for size in (1024, 2048, 4096)),
        ("sum", "half", 1024),
    ]


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
