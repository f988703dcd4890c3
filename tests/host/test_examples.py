"""The examples run as their docstrings say, and print what these show."""

import ast
import contextlib
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.host.network import network
from tests.support.host.scripts import descendants, run_script

FOLDER = ROOT / "examples"

PLAIN = (
    "comm_hook",
    "ddp",
    "fsdp2",
    "gtopk",
    "own_scheme",
    "priorities",
    "read_statistics",
    "sparse_embedding",
)
FRAMEWORKS = {
    "accelerate_loop": ("accelerate",),
    "lightning_fit": ("lightning",),
    "ray_train": ("ray", "pandas", "pyarrow"),
    "torchft_replicas": ("torchft",),
    "trainer": ("transformers", "accelerate"),
}
ALONE = ("ray_train", "torchft_replicas")
"""These frameworks start their ranks themselves."""
OF_SEVERAL_HOSTS = ("two_hosts.py", "slurm.sh")
SIMULATED = ("slot_life", "stream_engine")
"""These run the gateware in Amaranth's simulator."""
WITH_RANKS = ("rank_dies",)
"""These start their ranks themselves."""
RESTARTED = ("restarts",)
"""Ranks die, and torchrun starts them again."""

MOST_LINES = 80
MOST_LINES_SIMULATED = 130

RUNNER = """
import os, runpy, sys
for name in os.environ["EXAMPLES"].split():
    if os.environ.get("RANK", "0") == "0":
        print(f"== {name}", flush=True)
    sys.argv = [name]
    runpy.run_path(name, run_name="__main__")
"""


def blocks(name):
    """Return the indented blocks of an example's docstring: commands, and what they print."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")))
    assert text is not None
    found = re.findall(r"(?:^    .*\n?)+", text, re.MULTILINE)
    commands, printed = (each.replace("    ", "", 1).splitlines() for each in found)
    return [each.strip() for each in commands], [each.strip() for each in printed]


def missing_lines(printed, output):
    """Return the first of the lines that the output does not have, in order; … is any text."""
    at = 0
    for line in printed:
        wanted = ".*".join(map(re.escape, line.split("…")))
        hit = re.compile(rf"(?:^|\) |\x1b\[0m ){wanted}$", re.MULTILINE).search(output, at)
        if hit is None:
            return [line]
        at = hit.end()
    return []


def run(names, folder, ranks=2, limit_s=120.0):
    """Run examples one after the other in the same ranks; return what each has printed."""
    paths = [str(FOLDER / f"{name}.py") for name in names]
    environment = {"EXAMPLES": " ".join(paths), "PYTHONUNBUFFERED": "1"}
    done = run_script(RUNNER, folder, ranks=ranks, environment=environment, limit_s=limit_s)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    _, *parts = re.split(r"^== .*\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(names, parts, strict=True))


def check(name, output):
    _, printed = blocks(name)
    assert missing_lines(printed, output) == [], output


def test_plain_examples_print_what_they_say(tmp_path):
    """All in one pair of ranks, as imports would take most of the time."""
    for name, output in run(PLAIN, tmp_path).items():
        check(name, output)


@pytest.mark.long
@pytest.mark.parametrize("name", PLAIN)
def test_each_example_runs_alone(name, tmp_path):
    check(name, run([name], tmp_path)[name])


@pytest.mark.long
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks_print_what_they_say(name, tmp_path):
    for package in FRAMEWORKS[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    ranks = 0 if name in ALONE else 2
    check(name, run([name], tmp_path, ranks)[name])


@pytest.mark.long
@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_examples_print_what_they_say(name, tmp_path):
    check(name, run([name], tmp_path, 0)[name])


@pytest.mark.parametrize("name", WITH_RANKS)
def test_examples_with_ranks_of_their_own_print_what_they_say(name, tmp_path):
    command = [sys.executable, str(FOLDER / f"{name}.py")]
    variables = environment(GLOO_SOCKET_IFNAME="lo")
    done = subprocess.run(
        command,
        check=False,
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    check(name, done.stdout)


@pytest.mark.long
def test_restarts_go_on_with_the_bits_of_a_run_without_a_death(tmp_path):
    done = run_script(
        (FOLDER / "restarts.py").read_text(encoding="utf-8"),
        tmp_path,
        ranks=2,
        environment={"CHECKPOINT": str(tmp_path / "checkpoint.pt")},
        limit_s=120.0,
        options=("--max-restarts", "1"),
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    check("restarts", done.stdout)


def environment(**more):
    """Return variables with which `torchrun` and `afflux` are found, and Gloo's interface."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {
        **os.environ,
        "PATH": path,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        **more,
    }


def outputs(processes, limit_s=100):
    """Wait for shells to end well; return what each has printed."""
    try:
        ends = [process.communicate(timeout=limit_s) for process in processes]
    finally:
        for process in processes:
            for pid in (
                [] if process.poll() is not None else [*descendants(process.pid), process.pid]
            ):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
    for (out, err), process in zip(ends, processes, strict=True):
        assert process.returncode == 0, out[-2000:] + err[-4000:]
    return [out for out, _ in ends]


@pytest.mark.long
def test_two_hosts_run_the_commands(tmp_path):
    """As a user types them, at hosts of a network; the second one skips secret and server.

    The README's commands, which are the same, run in every test run.
    """
    commands, printed = blocks("two_hosts")
    with network(hosts=2, aggregators=0, gbit=None) as made:
        address = made.hosts[0].address

        def typed(lines):
            text = "\n".join(lines).replace("10.0.0.1", address)
            return text.replace("examples/", f"{FOLDER}/")

        ended = "trap 'kill $server' EXIT"
        first = [commands[0], f"{commands[1]} server=$!", ended, *commands[2:]]
        assert commands[1].endswith("&")
        second = ["until [ -s afflux.secret ]; do sleep 0.1; done", *commands[2:]]
        second[-1] = second[-1].replace("--node-rank 0", "--node-rank 1")
        assert second[-1] != commands[-1]
        out, _ = outputs([
            host.popen(
                "sh", "-c", f"set -e; cd {shlex.quote(str(tmp_path))}\n{typed(lines)}",
                env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for host, lines in zip(made.hosts, (first, second), strict=True)
        ])  # fmt: skip
    assert missing_lines([line.replace("10.0.0.1", address) for line in printed], out) == [], out


@pytest.mark.long
def test_slurm_starts_ranks_on_both_nodes(tmp_path):
    """With stand-ins for `srun` and `scontrol`: the nodes are hosts of a network."""
    with network(hosts=2, aggregators=0, gbit=None) as made:
        places = [shlex.join(host.command()) for host in made.hosts]
        for name, lines in {
            "srun": [
                *(f'{place} "$@" & p{n}=$!' for n, place in enumerate(places)),
                "wait $p0 && wait $p1",
            ],
            "scontrol": ['test "$*" = "show hostnames h[0-1]"', "echo h0", "echo h1"],
        }.items():
            tool = tmp_path / name
            tool.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
            tool.chmod(0o755)
        variables = environment(
            SLURM_JOB_NODELIST="h[0-1]", SLURM_JOB_NUM_NODES="2", SLURM_JOB_ID="77"
        )
        variables["PATH"] = f"{tmp_path}{os.pathsep}{variables['PATH']}"
        process = subprocess.Popen(
            ["sh", str(FOLDER / "slurm.sh"), str(FOLDER / "ddp.py")],
            env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        (out,) = outputs([process])
    # Of four ranks each has another share of the rows.
    printed = [re.sub(r"loss .*", "loss …", line) for line in blocks("ddp")[1]]
    assert missing_lines(printed, out) == [], out


@pytest.mark.parametrize("name", [*PLAIN, *FRAMEWORKS, *SIMULATED, *WITH_RANKS, *RESTARTED])
def test_the_command_is_of_the_example(name):
    commands, printed = blocks(name)
    assert commands[-1].endswith(f" examples/{name}.py")
    if name not in (*ALONE, *SIMULATED, *WITH_RANKS):
        assert commands[-1].startswith("torchrun --nproc-per-node 2 ")
    assert printed


def test_every_example_is_run_short_and_listed():
    files = {each.name for each in FOLDER.iterdir() if each.suffix in (".py", ".sh")}
    run_here = {f"{name}.py" for name in [*PLAIN, *FRAMEWORKS, *SIMULATED, *WITH_RANKS, *RESTARTED]}
    assert files == {*run_here, *OF_SEVERAL_HOSTS}
    listed = re.findall(r"^\| \[(.*?)\]\((.*?)\) \|", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted((name, name) for name in files)
    lengths = {name: len((FOLDER / name).read_text().splitlines()) for name in files}
    most = dict.fromkeys(files, MOST_LINES)
    most |= {f"{name}.py": MOST_LINES_SIMULATED for name in SIMULATED}
    assert {name: n for name, n in lengths.items() if n > most[name]} == {}


def test_lines_that_are_missing_wrong_or_in_another_order_are_found():
    output = "(Worker pid=1) one\ntwo 2.5 ms\nthree\n"
    assert missing_lines(["one", "two … ms", "three"], output) == []
    assert missing_lines(["two … ms", "one"], output) == ["one"]
    assert missing_lines(["tw"], output) == ["tw"]
    assert missing_lines(["four"], output) == ["four"]
