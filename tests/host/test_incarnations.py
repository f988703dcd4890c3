"""Groups that are made again, late ranks, and ends: what happens in whole processes."""

import json

import pytest

from tests.support.host.scripts import run_script

# The ranks of a script share one pipe: what each writes in one call stays in one piece.

RESTARTED = """
import os, signal, torch, torch.distributed as dist, afflux
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
engines = []
for incarnation in range(3):
    dist.init_process_group("afflux")
    rank, group = dist.get_rank(), dist.new_group()
    for step in range(5):
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, group=group)
        dist.broadcast(tensor, 0)
        if attempt == 0 and incarnation == 1 and step == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        assert tensor[0] == dist.get_world_size() ** 2, tensor
    engines += [afflux.statistics()["engine"], afflux.statistics(group)["engine"]]
    dist.destroy_process_group()
os.write(1, " ".join(["ENGINES", str(attempt), *engines, "\\n"]).encode())
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_restarts_and_second_groups_share_memory(ranks, tmp_path):
    """Torchrun restarts the ranks, and every process makes its groups three times."""
    options = ["--max-restarts", "1"]
    outcome = run_script(RESTARTED, tmp_path, ranks=ranks, options=options, limit_s=90)
    assert outcome.returncode == 0, outcome.stderr
    lines = [line for line in outcome.stdout.splitlines() if "ENGINES" in line]
    assert [line.split() for line in lines] == [["ENGINES", "1", *["shm"] * 6]] * ranks


# Rank 0 has the store, and ends long before the others; rank 2 comes late.
GOOD = """
import json, os, pathlib, socket, subprocess, sys, time
if "RANK" not in os.environ:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        free = found.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(free)},
        )
        for rank in range(3)
    ]
    sys.exit(max(rank.wait() for rank in ranks))
rank = int(os.environ["RANK"])
import torch, torch.distributed as dist, afflux
here = pathlib.Path(__file__).with_name
here(str(rank)).touch()
while rank == 2 and not (here("0").exists() and here("1").exists()):
    time.sleep(0.05)
if rank == 2:
    time.sleep(5)
started = time.monotonic()
dist.init_process_group("afflux")
waited = time.monotonic() - started
groups = [dist.new_group() for _ in range(4)]
threads = [len(os.listdir("/proc/self/task"))]
files = [len(os.listdir("/proc/self/fd"))]
more = [dist.new_group() for _ in range(4)]
threads.append(len(os.listdir("/proc/self/task")))
files.append(len(os.listdir("/proc/self/fd")))
tensor = torch.ones(10)
for group in groups + more:
    dist.all_reduce(tensor, group=group)
    dist.broadcast(tensor, 0, group=group)
found = {
    "engine": afflux.statistics()["engine"],
    "waited": waited,
    "threads": (threads[1] - threads[0]) / 4,
    "files": (files[1] - files[0]) / 4,
}
os.write(1, (json.dumps(found) + "\\n").encode())
time.sleep(rank)
if rank == 1:
    sys.exit()
dist.destroy_process_group()
"""


def test_a_good_run_says_nothing(tmp_path):
    """Nothing of late ranks or of early ends is written to stderr; a group costs little."""
    outcome = run_script(GOOD, tmp_path, limit_s=120)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [each["engine"] for each in found] == ["shm"] * 3
    assert max(each["waited"] for each in found) > 3
    for each in found:
        # Of a Gloo group of their own, torch's groups have 3 threads and 6 descriptors here.
        assert each["threads"] <= 5
        assert each["files"] <= 6
