"""Programs under torchrun: what only whole processes can show."""

import tempfile
from pathlib import Path
from typing import Any

from tests.conformance.script import launched
from tests.support.host.scripts import run_script

_HEAD = """
import os, signal, sys
import torch, torch.distributed as dist
import afflux
backend = "{backend}"
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
"""


def under_torchrun(
    backend: str, ranks: int, text: str, *, restarts: int = 0, status: int = 0
) -> str:
    """Run a script under torchrun; return what its ranks wrote into $FOLDER/note<rank>.

    Raises:
        AssertionError: It ended with another status.
    """
    with tempfile.TemporaryDirectory(prefix="afflux-") as folder:
        environment = {"FOLDER": folder}
        done = run_script(
            _HEAD.format(backend=backend) + text,
            Path(folder),
            ranks=ranks,
            environment=environment,
            limit_s=120,
            options=[f"--max-restarts={restarts}"] if restarts else [],
        )
        assert done.returncode == status, f"status {done.returncode}: {done.stderr[-2000:]}"
        notes = sorted(Path(folder).glob("note*"))
        return "\n".join(each.read_text(encoding="utf-8") for each in notes)


# With Gloo the new incarnation may meet the keys of the old one, and wait for ever.
@launched(slow=True, limit_s=120, beyond_gloo=True)
def restarted_by_torchrun(backend: str, ranks: int) -> Any:
    """Die in mid-training once, and go on in the second incarnation by --max-restarts=1."""
    text = """
incarnation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
tensor = torch.zeros(1)
for step in range(4):
    tensor = torch.ones(3) * (rank + 1)
    dist.all_reduce(tensor)
    if incarnation == 0 and step == 2 and rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
if backend == "afflux":
    assert afflux.statistics()["engine"] == "shm", afflux.statistics()
with open(os.environ["FOLDER"] + f"/note{rank}", "w") as file:
    file.write(f"{incarnation} {tensor.tolist()}")
dist.destroy_process_group()
"""
    return under_torchrun(backend, ranks, text, restarts=1)


# With Gloo the second group may meet the keys of the first, and wait for ever.
@launched(slow=True, limit_s=120, beyond_gloo=True)
def twice_by_env(backend: str, ranks: int) -> Any:
    """End the group and init again from torchrun's environment; Gloo may refuse."""
    text = """
values = []
for incarnation in range(2):
    if incarnation:
        dist.init_process_group(backend)
    tensor = torch.ones(3) * (rank + 1 + incarnation)
    dist.all_reduce(tensor)
    values.append(tensor.tolist())
    if backend == "afflux":
        assert afflux.statistics()["engine"] == "shm", afflux.statistics()
    dist.destroy_process_group()
with open(os.environ["FOLDER"] + f"/note{rank}", "w") as file:
    file.write(str(values))
"""
    return under_torchrun(backend, ranks, text)


# A rank with Gloo may end in an error when another's connections close first.
@launched(slow=True, limit_s=120, beyond_gloo=True)
def forgotten_destroy(backend: str, ranks: int) -> Any:
    """End the program without destroying the group: status 0, and no error is printed."""
    text = """
tensor = torch.ones(3)
dist.all_reduce(tensor)
with open(os.environ["FOLDER"] + f"/note{rank}", "w") as file:
    file.write(str(tensor.tolist()))
"""
    return under_torchrun(backend, ranks, text)


@launched(slow=True, limit_s=120)
def error_at_one_rank(backend: str, ranks: int) -> Any:
    """Raise at one rank: the whole run ends with status 1, soon."""
    text = """
dist.all_reduce(torch.ones(1))
if rank == 0:
    raise ValueError("a user's own")
dist.all_reduce(torch.ones(1))
"""
    return under_torchrun(backend, ranks, text, status=1)
