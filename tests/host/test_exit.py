"""Ends of processes: nothing hangs, nothing crashes, nothing is left."""

import time

import pytest

from tests.support.host.scripts import alive, run_script

START = """
import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import afflux
from afflux.group.forming import launched_aggregator
dist.init_process_group("afflux", timeout=timedelta(seconds=20))
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert tensor[0] == size
for each in launched_aggregator._launched.values():
    print("engine", each.process.pid, flush=True)
"""

ENDS = {
    "destroyed": "dist.destroy_process_group()",
    "not destroyed": "",
    "in flight": "works = [dist.all_reduce(torch.ones(300_000), async_op=True) for _ in range(4)]",
    "in flight, unmatched": "work = dist.all_reduce(torch.ones(3 + rank), async_op=True)",
    "in flight, alone": """
store = dist.distributed_c10d._get_default_store()
if rank:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    store.set("begun", "")
else:
    # An end that is known already refuses the call.
    store.wait(["begun"])
""",
    "sys.exit": "sys.exit(0)",
    "atexit": "import atexit; atexit.register(dist.destroy_process_group)",
    "Gloo in flight": "work = dist.broadcast(torch.ones(300_000), 0, async_op=True)",
    "Gloo's threads starved": """
import threading
ours = {thread.native_id for thread in threading.enumerate()}
for thread in map(int, os.listdir("/proc/self/task")):
    if thread not in ours:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(thread, {min(os.sched_getaffinity(0))})
for _ in range(5):
    dist.broadcast(torch.ones(3000), 0)
""",
}


def engine_of(output):
    (line,) = [line for line in output.splitlines() if line.startswith("engine ")]
    return int(line.split()[1])


def wait_until_gone(pid):
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


LONG = pytest.mark.long

# Every other script ends as these do, or a test below ends so with an aggregator; and of two
# scripts with a call that has no match, one is enough.
OTHERWISE_SEEN = (
    "destroyed",
    "not destroyed",
    "in flight",
    "in flight, alone",
    "sys.exit",
    "atexit",
)


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=LONG) if end in OTHERWISE_SEEN else end for end in ENDS]
)
def test_ends_cleanly(end, tmp_path):
    done = run_script(START + ENDS[end], tmp_path, ranks=2)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Fatal" not in done.stderr
    assert "engine " not in done.stdout


DAEMONS = """
import threading
other = dist.new_group()
def loop(call):
    tensor = torch.ones(1000)
    while True:
        try:
            call(tensor)
        except Exception:
            pass
for call in (
    lambda tensor: dist.all_reduce(tensor),
    lambda tensor: dist.broadcast(tensor, 0, group=other),
    lambda tensor: dist.recv(tensor, 1 - rank),
):
    threading.Thread(target=loop, args=(call,), daemon=True).start()
time.sleep(0.2)
"""
"""CPython before 3.14 ends them when the interpreter has ended, in the middle of C++."""


@pytest.mark.parametrize(
    ("adapter", "url"),
    [("native", "auto"), pytest.param("python", "soft://", marks=LONG)],
)
def test_daemons_in_collectives_do_not_abort(adapter, url, tmp_path):
    environment = {"AFFLUX_ADAPTER": adapter, "AFFLUX_AGGREGATOR": url}
    done = run_script(START + DAEMONS, tmp_path, ranks=2, environment=environment)
    assert done.returncode == 0, done.stderr


LATE = """
import atexit, threading
class Last:
    def __del__(self):
        # The daemon waits 0.1 s at a time without the interpreter.
        self.sleep(0.3)
def make_group():
    group = dist.new_group()
    if rank == 0:
        call = lambda: dist.all_reduce(torch.ones(3), group=group)
        threading.Thread(target=call, daemon=True).start()
        time.sleep(0.05)
last = Last()
last.sleep = time.sleep
"""


@LONG
def test_a_daemon_in_a_group_that_is_made_at_the_very_end(tmp_path):
    text = LATE + "atexit.register(make_group)\n" + START
    done = run_script(
        "import time" + text, tmp_path, ranks=2, environment={"AFFLUX_ADAPTER": "native"}
    )
    assert done.returncode == 0, done.stderr


SOFT = {"AFFLUX_AGGREGATOR": "soft://"}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("not destroyed", marks=LONG),
        "in flight",
        pytest.param("in flight, unmatched", marks=LONG),
    ],
)
def test_ends_cleanly_with_its_aggregator(end, tmp_path):
    done = run_script(START + ENDS[end], tmp_path, ranks=2, environment=SOFT)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Fatal" not in done.stderr
    assert wait_until_gone(engine_of(done.stdout))


CRASHES = {
    "exception": "raise ValueError('as planned') if rank == 0 else None\ntime.sleep(30)",
    "killed": "os.kill(os.getpid(), 9) if rank == 0 else None\ntime.sleep(30)",
    "os._exit": "os._exit(5) if rank == 0 else None\ntime.sleep(30)",
}


@pytest.mark.parametrize(
    "crash", ["killed", *(pytest.param(each, marks=LONG) for each in ("exception", "os._exit"))]
)
def test_a_crash_of_rank_0_leaves_no_aggregator(crash, tmp_path):
    done = run_script(START + CRASHES[crash], tmp_path, ranks=2, environment=SOFT)
    assert done.returncode == 1
    assert wait_until_gone(engine_of(done.stdout))


def test_torchrun_shows_the_error_of_a_rank(tmp_path):
    text = START + "dist.all_reduce(torch.ones(3 + rank))"
    done = run_script(text, tmp_path, ranks=2)
    assert done.returncode == 1
    assert "rank 0: all_reduce sum float32 (3,)" in done.stderr
    assert "rank 1: all_reduce sum float32 (4,)" in done.stderr


def test_an_unknown_variable_and_the_way_to_gloo_are_reported_once(tmp_path):
    text = "import logging\nlogging.basicConfig(level=logging.INFO)\n" + START
    text += "for _ in range(3): dist.all_reduce(torch.ones(3), op=dist.ReduceOp.PRODUCT)"
    done = run_script(text, tmp_path, ranks=1, environment={"AFFLUX_AGREGATOR": "soft://"})
    assert done.returncode == 0
    assert done.stderr.count("unknown environment variable AFFLUX_AGREGATOR") == 1
    line = "INFO:afflux:all_reduce float32 goes to Gloo"
    assert done.stderr.count(line) == 1
