"""The command `afflux` as a whole: what it loads, its version, its streams and exit statuses."""

import argparse
import json
import subprocess
import sys
import tomllib

import pytest

import afflux
from afflux.commands import cli
from afflux.commands.bench.options import add_arguments, read_options
from afflux.commands.bench.side_table import side_table
from afflux.commands.parser import COMMANDS
from afflux.group.settings.aggregator_url import AggregatorUrl
from tests.support.checkout import ROOT
from tests.support.host.aggregators import aggregator, closed_port

LARGE = ("torch", "numpy", "amaranth")

WORDS = (
    ["--version"],
    ["--help"],
    *([name, "--help"] for name in COMMANDS),
    *(["serve", name, "--help"] for name in ("soft", "rtl", "node", "board", "device")),
    *(["device", name, "--help"] for name in ("list", "show", "configure", "counters", "reset")),
)

LOADED = f"""
import json, sys
from afflux.commands.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as ended:
        assert ended.code == 0, words
    found = [name for name in {LARGE!r} if name in sys.modules]
    print(words, "loads", found, file=sys.stderr)
"""


def python(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_help_and_version_load_nothing_large():
    said = python(LOADED, json.dumps(WORDS)).stderr.splitlines()
    assert said == [f"{list(words)} loads []" for words in WORDS]


def test_all_parsers_together_load_nothing_large():
    program = f"""
import sys
from afflux.commands.parser import build_parser
build_parser()
print([name for name in {LARGE!r} if name in sys.modules])
"""
    assert python(program).stdout == "[]\n"


def test_info_and_counters_run_without_torch():
    program = """
import sys
from afflux.commands.cli import main
statuses = main(["info"]), main(["counters", sys.argv[1]])
print("torch" in sys.modules, statuses, file=sys.stderr)
"""
    port = closed_port()
    assert python(program, f"udp://127.0.0.1:{port}").stderr.endswith("False (0, 1)\n")


@pytest.mark.parametrize("order", ["import afflux, torch", "import torch, afflux"])
def test_importing_the_package_registers_the_backend_in_either_order(order):
    program = f"""
{order}
import sys
import torch.distributed as dist
print("afflux" in dist.Backend.backend_list, callable(afflux.statistics), afflux.Options.__name__)
import afflux.group_statistics
print(afflux.statistics is afflux.group_statistics.statistics, sorted(afflux.__all__) == [
    name for name in dir(afflux) if name in afflux.__all__])
"""
    assert python(program).stdout == "True True Options\nTrue True\n"


@pytest.mark.parametrize(
    "module",
    [
        "afflux.hooks",
        "afflux.group.core",
        pytest.param("afflux.by_name", marks=pytest.mark.long),
        pytest.param("afflux.group_statistics", marks=pytest.mark.long),
    ],
)
def test_a_module_that_is_the_first_to_import_torch_finds_the_backend_registered(module):
    program = f"import {module}, torch.distributed as dist; print(dist.Backend.AFFLUX)"
    assert python(program).stdout == "afflux\n"


def test_the_package_alone_loads_nothing_large():
    program = f"import afflux, sys; print([name for name in {LARGE!r} if name in sys.modules])"
    assert python(program).stdout == "[]\n"


def test_a_name_that_the_package_lacks_is_named():
    with pytest.raises(AttributeError, match="no attribute 'sum_up'"):
        afflux.sum_up  # noqa: B018 - looked up is enough


def test_the_version_is_that_of_the_project(capsys):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = tomllib.loads(text)["project"]["version"]
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"afflux {wanted}\n"
    assert afflux.__version__ == wanted


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "required: COMMAND"),
        ("sum", "invalid choice: 'sum'"),
        ("serve", "engines:"),
        ("serve hard", "'hard'"),
        ("serve soft --port 99999", "from 0 to 65535"),
        ("counters", "required: URL"),
        ("counters udp://h --times 2", "--times goes with --watch"),
        ("counters soft://", "ranks start this one themselves"),
        ("info upd://h:4700", "did you mean udp://h:4700?"),
        ("info --fast", "--fast: there is no such option"),
        ("device show nowhere", "not the URL of a device"),
        ("flash", "FILE, --board"),
        ("completion fish", "invalid choice: 'fish'"),
        ("bench --ranks 0", "'0' is not a whole number from 1 to 64"),
        ("bench --ranks 65", "'65' is not a whole number from 1 to 64"),
        ("bench --size 1G", "sizes are a range; for one: -b 1G -e 1G"),
        ("bench 1G", "'1G' is a size, which -b and -e take: -b 1G -e 1G"),
        ("bench alltoall", "'alltoall' is not one of all_reduce, broadcast"),
        ("bench -e 4M -f 8", "below the least size, 32M unless -b sets it"),
    ],
)
def test_wrong_options_end_with_2_on_standard_error(words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(cli.main(words.split()))
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.count(says) == 1, said.err


@pytest.mark.parametrize(
    "words",
    [
        "serve soft --host nowhere.invalid",
        "counters udp://127.0.0.1:{port}",
        "device show pcie://0000:3b:00.0 --sysfs /nowhere",
        "flash missing.bit --board ulx3s-85f",
    ],
)
def test_failures_end_with_1_on_standard_error(words):
    ended = subprocess.run(
        [sys.executable, "-m", "afflux", *words.format(port=closed_port()).split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    assert len(ended.stderr.splitlines()) == 1


def test_the_greatest_size_is_shown_as_given():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = read_options(parser, parser.parse_args(["-b", "8", "-e", "4M", "-f", "8"]))
    assert options.sizes[-1] == 2 << 20
    assert (options.least, options.most) == (8, 4 << 20)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10.0.0.9:4700", "there is no scheme; did you mean udp://10.0.0.9:4700?"),
        ("tcp://h:1", "unknown scheme 'tcp'; did you mean udp://h:1?"),
        ("sotf://", "unknown scheme 'sotf'; did you mean soft://?"),
        ("soft", "there is no scheme; did you mean soft://?"),
        ("ftp://a/b", "unknown scheme 'ftp'; known are auto, shm, soft, rtl, board, streams, gloo, "
         "udp; a running aggregator is udp://host[:port]"),
        ("board://?x=1", "board:// has no option x; expected board://"),
        ("udp://h:0", "'h:0' has the port 0: it must be from 1 to 65535; expected "
         "udp://host[:port][?parent=host[:port]]"),
    ],
)  # fmt: skip
def test_a_wrong_url_gets_the_one_hint_that_helps(text, hint):
    with pytest.raises(ValueError) as raised:
        AggregatorUrl.parse(text)
    assert str(raised.value) == hint


def test_counters_are_json_and_watched(capsys):
    with aggregator() as url:
        assert cli.main(["counters", url, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert cli.main(["counters", url]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == list(found)
        assert cli.main(["counters", url, "--watch", "0.01", "--times", "2", "--json"]) == 0
        grown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(grown) == 2
    assert all(each.keys() == {"seconds"} for each in grown)


def test_completion_knows_the_options(capsys):
    pytest.importorskip("shtab")
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "--requests-per-second" in script
    assert "--datatype" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_completion_says_what_it_needs(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 1
    assert "pip install 'afflux[completion]'" in capsys.readouterr().err


def test_columns_of_the_side_table_have_a_legend():
    row = {
        **{"bytes": 4, "dtype": "float", "op": "sum", "same_bits": True, "way": "small"},
        **{f"{name}_s": 1e-6 for name in ("afflux", "afflux_cpu", "floor", "read_floor")},
    }
    lines = side_table([row], ()).splitlines()
    for column in ("add one", "read", "way"):
        assert sum(line.startswith(f"# {column}: ") for line in lines) == 1
    assert not any(line.startswith("# memcpy") for line in lines)
