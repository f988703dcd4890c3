"""AFFLUX_TRACE: one whole line of JSON for each call."""

import errno
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from afflux.group.settings.variables import Settings
from afflux.observe import observers as observers_module
from afflux.observe import trace_file
from afflux.observe.observers import Observers
from afflux.observe.trace_file import bus_factor


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No flight recorder, and files that the test closes."""
    monkeypatch.setattr(observers_module, "process_recorder", lambda: None)
    files: dict[object, trace_file.TraceFile] = {}
    monkeypatch.setattr(trace_file, "_files", files)
    yield
    for file in files.values():
        file.close()


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def call(observers, sequence, name, text, inputs, outputs, error=None, **transfer):
    observation = observers.begin(sequence, name, text, "engine", inputs, outputs, 5.0, **transfer)
    time.sleep(0.001)
    observers.started(observation)
    time.sleep(0.001)
    observers.end(observation, error)


def test_a_trace_is_its_users_alone(tmp_path):
    """It may name a model's parameters, in the texts of hooks' and calls' errors."""
    path = tmp_path / "trace.jsonl"
    Observers("tp", "", 1, 4, (4, 5, 6, 7), "shm", str(path))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_says_all_of_its_call(tmp_path):
    path = tmp_path / "trace.jsonl"
    observers = Observers("tp", "", 1, 4, (4, 5, 6, 7), "shm", str(path))
    counts = {"blocks_present": 0, "blocks_total": 0}
    observers.measure(lambda: dict(counts))
    assert observers.active
    tensor = torch.zeros(100, 10, dtype=torch.bfloat16)
    observation = observers.begin(
        3, "all_reduce", "all_reduce avg bfloat16 (100, 10)", "engine", [tensor], [tensor], 5.0
    )
    wall_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
    time.sleep(0.002)
    observers.started(observation)
    counts.update(blocks_present=7, blocks_total=16)
    time.sleep(0.002)
    observers.end(observation)
    gathered = [torch.zeros(6) for _ in range(4)]
    call(observers, 4, "allgather", "allgather float32 (6,)", [torch.zeros(6)], gathered)
    call(observers, 5, "barrier", "barrier", [], [])
    quoted = RuntimeError('a "quoted"\nerror')
    call(observers, 6, "broadcast", "broadcast float32 (6,)", gathered, gathered, quoted)
    call(observers, 6, "send", "send float32 (6,)", [torch.zeros(6)], [], peer=2, tag=3)
    first, gather, barrier, failed, sent = lines_of(path)
    times = {key: first.pop(key) for key in list(first) if key.endswith("_ns")}
    queued, started, ended = (
        times[f"{name}_monotonic_ns"] for name in ("queued", "started", "ended")
    )
    assert started - queued >= 2_000_000
    assert ended - started >= 2_000_000
    assert 0 <= monotonic_ns - queued < 1_000_000_000
    assert abs(times["queued_ns"] - wall_ns) < 1_000_000_000
    assert times["ended_ns"] - times["queued_ns"] == ended - queued
    bandwidth = 2000 / (ended - started)
    assert first.pop("algbw_gbytes_per_s") == pytest.approx(bandwidth, abs=6e-5)
    assert first.pop("busbw_gbytes_per_s") == pytest.approx(1.5 * bandwidth, abs=6e-5)
    assert first == {
        "rank": 5,
        "group": "tp",
        "group_rank": 1,
        "group_size": 4,
        "sequence": 3,
        "collective": "all_reduce",
        "dtype": "bfloat16",
        "count": 1000,
        "bytes": 2000,
        "reduction": "avg",
        "way": "engine",
        "blocks_present": 7,
        "blocks_total": 16,
        "error": None,
    }
    assert (gather["bytes"], gather["count"], gather["reduction"]) == (96, 24, None)
    assert (barrier["dtype"], barrier["bytes"], barrier["algbw_gbytes_per_s"]) == (None, 0, 0)
    assert failed["error"] == 'a "quoted"\nerror'
    assert failed["algbw_gbytes_per_s"] == 0
    assert (sent["peer"], sent["tag"]) == (2, 3)


@pytest.mark.parametrize(
    ("name", "factor"),
    [("all_reduce", 1.5), ("all_gather_single", 0.75), ("reduce_scatter", 0.75), ("broadcast", 1)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(name, factor):
    assert bus_factor(name, 4) == factor


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ("plain.jsonl", "plain.jsonl"),
        ("new/of-%r.jsonl", "new/of-6.jsonl"),
        ("%p-%r", "PID-6"),
        ("", "afflux-6-PID.jsonl"),
        ("made/", "made/afflux-6-PID.jsonl"),
    ],
)
def test_where_the_lines_go(tmp_path, wish, expected):
    # A path that is the folder itself, too.
    where = f"{tmp_path}/{wish}" if wish else str(tmp_path)
    groups = [Observers(name, "", 1, 2, (3, 6), "shm", where) for name in "ab"]
    for observers in groups:
        call(observers, 1, "barrier", "barrier", [], [])
    path = tmp_path / expected.replace("PID", str(os.getpid()))
    assert [line["group"] for line in lines_of(path)] == ["a", "b"]


def test_the_variable_is_a_setting():
    assert Settings.from_environment({"AFFLUX_TRACE": " /a/b "}).trace == "/a/b"
    assert Settings.from_environment({}).trace is None


def test_a_full_disk_ends_the_trace_and_nothing_else(tmp_path, monkeypatch, caplog):
    observers = Observers("0", "", 0, 1, (0,), "shm", str(tmp_path / "trace"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(trace_file.os, "write", full)
        call(observers, 1, "barrier", "barrier", [], [])
    assert "AFFLUX_TRACE" in caplog.text
    assert "No space left on device" in caplog.text
    assert not observers.active


WRITER = """
import os, sys, torch
from afflux.observe.observers import Observers
observers = Observers("0", "", int(sys.argv[2]), 2, (0, 1), "shm", sys.argv[1])
tensor = [torch.zeros(1000)]
sequence = 0
while True:
    sequence += 1
    observation = observers.begin(
        sequence, "all_reduce", "all_reduce sum float32 (1000,)", "engine", tensor, tensor, 1.0
    )
    observers.started(observation)
    observers.end(observation)
    if sequence == 100:
        print("going", flush=True)
"""


def whole_lines(data: bytes) -> tuple[list[str], int]:
    """Return the lines of a file whose writers were killed, and how many of these cut one short.

    The kernel ends the write of a process that is being killed between two pages of the file, and
    nowhere else: what follows such a cut is another rank's line, or nothing.
    """
    whole, cut, at = [], 0, 0
    for line in data.splitlines(keepends=True):
        start, end = at, at + len(line)
        at = end
        try:
            json.loads(line)
        except json.JSONDecodeError:
            (page_end,) = range(start + -start % mmap.PAGESIZE, end + 1, mmap.PAGESIZE)
            assert start < page_end
            cut, start = cut + 1, page_end
        if start < end:
            rest = data[start:end].decode()
            json.loads(rest)
            assert rest.endswith("\n")
            whole.append(rest)
    return whole, cut


def test_lines_are_whole_when_ranks_that_share_a_file_are_killed(tmp_path):
    path = tmp_path / "shared.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(rank)], stdout=subprocess.PIPE
        )
        for rank in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == b"going\n"
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
    lines, cut = whole_lines(path.read_bytes())
    assert cut <= len(writers)
    of_ranks: dict[int, list[int]] = {0: [], 1: []}
    for line in lines:
        fields = json.loads(line)
        of_ranks[fields["rank"]].append(fields["sequence"])
    for sequences in of_ranks.values():
        assert sequences == list(range(1, len(sequences) + 1))
        assert len(sequences) >= 100


def test_a_cut_elsewhere_than_between_two_pages_is_seen():
    line = b'{"rank":0}\n'
    before = line * (mmap.PAGESIZE // len(line))
    short = line[: mmap.PAGESIZE - len(before)]
    assert 0 < len(short) < len(line)
    count = len(before) // len(line)
    assert whole_lines(before + short + line * 3) == ([line.decode()] * (count + 3), 1)
    assert whole_lines(before + short) == ([line.decode()] * count, 1)
    for wrong in (line[:4] + line * 3, before + short[:-1] + line * 3, line * 3 + line[:4]):
        with pytest.raises((AssertionError, ValueError)):
            whole_lines(wrong)


def test_threads_share_a_file(tmp_path):
    observers = Observers("0", "", 0, 1, (0,), "shm", str(tmp_path / "trace"))
    threads = [
        threading.Thread(target=lambda: [call(observers, 1, "x", "x", [], []) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines_of(tmp_path / "trace")) == 200
