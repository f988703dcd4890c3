"""The demonstration: what it insists on, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from afflux.demo.__main__ import main
from afflux.demo.launch import Run
from afflux.demo.report import checks, table
from tests.support.host.scripts import alive


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["0", pytest.param("0.02", marks=pytest.mark.long)])
def test_a_small_one_holds(capfd, loss):
    options = ["--without-rtl", "--epochs", "2", "--ranks", "2", "--loss", loss]
    assert main(options) == 0
    shown = capfd.readouterr().out
    assert "✗" not in shown
    assert ("soft and soft, no loss: weights equal to the bit" in shown) == (loss != "0")
    assert "\r" not in shown, "no terminal, so one line for each epoch"
    assert "soft             epoch  2/2" in shown


def made_up(name, url, sha256="aa", accepted=10):
    numbers = dict.fromkeys(
        ["frame_bytes_sent", "frame_bytes_received", "packets_sent", "packets_received",
         "dropped_sent", "dropped_received", "retransmissions"], 1,
    )  # fmt: skip
    rank = {"sha256": sha256, "accuracy": 0.5, "loss": 1.0, "seconds": 1.0}
    if url:
        rank["statistics"] = {**numbers, "blocks_sent": 5}
        rank["counters"] = {"blocks_accepted": accepted, "rounds": 1}
    return Run(name, url, [rank, rank], np.zeros(3, np.float32))


def failing(runs):
    return [check.claim for check in checks(runs) if not check.holds]


def test_it_can_fail():
    gloo = made_up("gloo", "", "bb")
    assert failing([made_up("rtl", "rtl://"), made_up("soft", "soft://"), gloo]) == []
    other_bits = made_up("soft", "soft://", "cc")
    assert failing([made_up("rtl", "rtl://"), other_bits, gloo]) == [
        "rtl and soft: weights equal to the bit"
    ]
    counted_twice = made_up("soft", "soft://", accepted=11)
    (said,) = failing([counted_twice, gloo])
    assert said.startswith("soft: 11 blocks accepted by the engine = 10 sent")
    torn = made_up("soft", "soft://")
    torn.ranks[1] = {**torn.ranks[1], "sha256": "dd"}
    assert "soft: the same weights at all ranks" in failing([torn, gloo])


def test_the_table_has_a_column_for_each_run():
    text = table([made_up("rtl", "rtl://"), made_up("soft", "soft://"), made_up("gloo", "")])
    assert text.splitlines()[0].split() == ["rtl", "soft", "gloo"]


def descendants(pid):
    """Return processes below `pid`, by way of their parents."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry), *descendants(int(entry))]
    return found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(how):
    command = [sys.executable, "-m", "afflux.demo", "--without-rtl"]
    command += ["--epochs", "500", "--ranks", "2"]
    process = subprocess.Popen(
        # Tests may run where interrupts are ignored, as in the background of a script.
        ["env", "--default-signal=INT", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # The first epoch is over: everything has been started.
        while line := process.stdout.readline():
            if "epoch" in line:
                break
        below = descendants(process.pid)
        assert len(below) >= 4, "torchrun, two ranks, an aggregator"
        process.send_signal(how)
        process.communicate(timeout=40)
        assert process.returncode == 130
        deadline = time.monotonic() + 5
        while any(alive(pid) for pid in below) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [pid for pid in below if alive(pid)] == []
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
