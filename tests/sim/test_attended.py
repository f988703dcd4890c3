"""Programs that a build starts: none of them outlives it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afflux_sim.rtl.compile.attended import run_attended

_LIMIT_S = 20.0

BUILDER = """
import sys
from afflux_sim.rtl.compile.attended import run_attended
run_attended(["sh", "-c", "sleep 300 & echo $! >$0/ids.part; echo $$ >>$0/ids.part; "
              "mv $0/ids.part $0/ids; wait", sys.argv[1]])
"""


def ids_in(path: Path) -> list[int]:
    deadline = time.monotonic() + _LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [int(line) for line in path.read_text().split()]


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    # Its new owner may take its time to ask how it ended.
    return state != "Z"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_compiler_ends_with_who_has_started_it(how, tmp_path):
    # Tests may run where interrupts are ignored, as in the background of a script.
    command = ["env", "--default-signal=INT", sys.executable, "-c", BUILDER, str(tmp_path)]
    builder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    started: list[int] = []
    try:
        started = ids_in(tmp_path / "ids")
        assert len(started) == 2
        assert all(map(runs, started))
        builder.send_signal(how)
        builder.wait(_LIMIT_S)
        deadline = time.monotonic() + _LIMIT_S
        while any(map(runs, started)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(runs, started))
    finally:
        builder.kill()
        builder.wait()
        for pid in started:
            if runs(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_what_it_returns():
    done = run_attended(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.returncode, done.stdout) == (3, b"out\nerr\n")
    done = run_attended(["sh", "-c", "echo err >&2; kill -9 $$"], stderr=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (128 + 9, b"", b"err\n")
    done = run_attended(["sh", "-c", "echo $WORD"], environment={**os.environ, "WORD": "word"})
    assert done.stdout == b"word\n"


def test_a_program_that_takes_too_long(tmp_path):
    script = f"sleep 300 & echo $! >{tmp_path}/part; mv {tmp_path}/part {tmp_path}/ids; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        run_attended(["sh", "-c", script], limit_s=2.0)
    deadline = time.monotonic() + _LIMIT_S
    while any(map(runs, ids_in(tmp_path / "ids"))):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="no-such-compiler"):
        run_attended(["no-such-compiler", "-c"])
