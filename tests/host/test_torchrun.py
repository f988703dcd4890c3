"""Programs under torchrun, or another launcher, and what becomes of a caller that waits."""

import os
import signal
import subprocess
import sys
import time

import pytest

from afflux import torchrun
from afflux.torchrun import RanksFailed, run_module

STUCK = "import time; print('begun', flush=True); time.sleep(300)"


def test_ranks_that_say_nothing_are_not_waited_for():
    launcher = [sys.executable, "-c", STUCK]
    started = time.monotonic()
    with pytest.raises(RanksFailed, match=r"printed nothing for 2 s\nbegun"):
        run_module("afflux", 2, [], {}, launcher=launcher, quiet_s=2.0)
    assert time.monotonic() - started < 60


def test_what_ranks_print_comes_in_lines_until_the_last_has_ended():
    script = "printf 'one\\r\\ntwo\\nth'; sleep 0.3; printf 'ree\\nfo\\303'; printf '\\266'"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as process:
        lines = list(torchrun._lines_of(process, 60.0))
    assert lines == ["one\n", "two\n", "three\n", "foö"]


def test_a_strange_process_with_the_pipe_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(torchrun, "_LAST_WORDS_S", 0.2)
    with subprocess.Popen(
        ["sh", "-c", "echo last; sleep 30 & echo $! >&2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        stranger = int(process.stderr.readline())
        try:
            assert list(torchrun._lines_of(process, 25.0)) == ["last\n"]
        finally:
            os.kill(stranger, signal.SIGKILL)
