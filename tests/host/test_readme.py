"""The script and the commands of the README do what it shows.

tests/house/test_first_sum.py holds the how-tos and the example to the same text.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.host.network import network

LIMIT_S = 240


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    # Every other fence closes a block.
    pieces = re.split(r"^```(\w*)\n", text, flags=re.MULTILINE)[1:]
    return [body for kind, body in zip(pieces[::4], pieces[1::4], strict=True) if kind == language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the README's script in it."""
    [script] = blocks("python")
    (tmp_path / "first_sum.py").write_text(script, encoding="utf-8")
    return tmp_path


def variables() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {
        name: text
        for name, text in os.environ.items()
        # The simulated engine is built quickly, as other tests build it.
        if not name.startswith("AFFLUX_") or name in ("AFFLUX_BUILD", "AFFLUX_CACHE")
    }
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1"}


def first_sums() -> list[str]:
    """Return the commands of the first session, each with what it prints."""
    [session] = [each for each in blocks("") if each.startswith("$ torchrun")]
    return re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(
    "part",
    [
        # The simulated engine is a large model to compile.
        pytest.param(each, marks=pytest.mark.long) if "rtl://" in each else each
        for each in first_sums()
    ],
)
def test_the_first_sums_print_what_is_shown(folder, part):
    command, _, shown = part.partition("\n")
    done = subprocess.run(
        ["sh", "-c", command],
        check=True,
        cwd=folder,
        env=variables(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert sorted(said_by_ranks(done.stdout)) == sorted(said_by_ranks(shown))


def said_by_ranks(text: str) -> list[str]:
    """Return what each rank has said; ranks write at once, so a line may hold two of them."""
    return re.findall(r"rank \d+:(?:(?!rank)[^\n])*", text)


def test_two_hosts_sum_by_the_commands_shown(folder):
    [session] = [each for each in blocks("") if "host-b$" in each]
    lines = session.replace("\\\n", " ").splitlines()
    with network(hosts=2, aggregators=0) as made, contextlib.ExitStack() as stack:
        a, b = made.hosts
        running = []
        for line in lines:
            host, command = re.fullmatch(r"host-(\w)\$ (.*?)( &)?", line).group(1, 2)
            process = (a if host == "a" else b).popen(
                "sh",
                "-c",
                # A host's namespaces have a working directory of their own.
                f"cd {folder} && {command.replace('host-a', a.name)}",
                env=variables(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            stack.callback(end, process)
            if line.endswith("&"):
                assert "udp://" in process.stdout.readline()
            elif "torchrun" in command:
                running.append(process)
            else:
                assert process.wait(LIMIT_S) == 0
        said = [process.communicate(timeout=LIMIT_S) for process in running]
    assert [out for out, _ in said] == ["rank 0: 3.0, by soft\n", "rank 1: 3.0, by soft\n"], said


def end(process: subprocess.Popen[str]) -> None:
    """End a process that the test has started, and its children."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
