"""torchrun starts all ranks again after a death, and they go on from the last checkpoint.

    torchrun --nproc-per-node 2 --max-restarts 1 examples/restarts.py

prints

    step 5: rank 1 dies
    attempt 1 begins at step 5
    20 steps; the parameters are those of a run without a death, to the bit: True
"""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux  # noqa: F401 - registers the backend

STEPS, DIES_IN = 20, 5
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "checkpoint.pt"))
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def new() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Make the model and its optimizer, the same at every rank."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Linear(20, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, first: int, dies_in: int, saves: bool
) -> None:
    """Train from a step to the end."""
    ddp = DistributedDataParallel(model)
    for number in range(first, STEPS):
        if dist.get_rank() == 0 and saves:
            state = {"step": number, "model": model.state_dict(), "sgd": optimizer.state_dict()}
            # A file that is there is whole.
            torch.save(state, CHECKPOINT.with_suffix(".new"))
            CHECKPOINT.with_suffix(".new").replace(CHECKPOINT)
        if number == dies_in and dist.get_rank() == 1:
            print(f"step {number}: rank 1 dies", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        generator = torch.Generator().manual_seed(1000 * number + dist.get_rank())
        optimizer.zero_grad()
        ddp(torch.randn(16, 10, generator=generator)).square().mean().backward()
        optimizer.step()


dist.init_process_group("afflux")
model, optimizer = new()
step = 0
if ATTEMPT:
    state = torch.load(CHECKPOINT)
    step = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["sgd"])
    if dist.get_rank() == 0:
        print(f"attempt {ATTEMPT} begins at step {step}", flush=True)
train(model, optimizer, step, -1 if ATTEMPT else DIES_IN, saves=True)

other, of_other = new()
train(other, of_other, 0, -1, saves=False)
pairs = zip(model.parameters(), other.parameters(), strict=True)
same = all(torch.equal(one, another) for one, another in pairs)
if dist.get_rank() == 0:
    CHECKPOINT.unlink()
    print(f"{STEPS} steps; the parameters are those of a run without a death, to the bit: {same}")
dist.destroy_process_group()
