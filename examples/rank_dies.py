"""A rank is killed in the midst of a step; the others make a smaller group, and repeat the step.

    python examples/rank_dies.py

prints

    step 5: rank 3 has died, 3 ranks go on
    20 steps, all parameters equal: True
"""

import os
import signal
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import afflux  # noqa: F401 - registers the backend

RANKS, STEPS, DIES_IN = 4, 20, 5


def step(ddp: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int, seed: int) -> None:
    """Train for one step."""
    generator = torch.Generator().manual_seed(1000 * number + seed)
    optimizer.zero_grad()
    ddp(torch.randn(16, 10, generator=generator)).square().mean().backward()
    optimizer.step()


def train(seed: int, store: str) -> None:
    """Train at one rank, whatever the others do."""
    meeting = torch.distributed.FileStore(store, RANKS)  # type: ignore[attr-defined]
    dist.init_process_group("afflux", store=meeting, rank=seed, world_size=RANKS)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ddp, number = DistributedDataParallel(model), 0
    while number < STEPS:
        if seed == RANKS - 1 and number == DIES_IN:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            step(ddp, optimizer, number, seed)
        except RuntimeError:
            # Nobody has changed a parameter: the optimizer comes behind the sums.
            dist.shrink_group([RANKS - 1], shrink_flags=1)
            if dist.get_rank() == 0:
                left = dist.get_world_size()
                print(f"step {number}: rank {RANKS - 1} has died, {left} ranks go on", flush=True)
            ddp = DistributedDataParallel(model)
            continue
        number += 1

    mine = torch.cat([each.detach().flatten() for each in model.parameters()])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    if dist.get_rank() == 0:
        equal = all(torch.equal(mine, each) for each in everyone)
        print(f"{STEPS} steps, all parameters equal: {equal}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            mp.Process(target=train, args=(rank, f"{folder}/store")) for rank in range(RANKS)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
