"""torchft's replicas average over Afflux: one is killed, others go on, another one comes.

    python examples/torchft_replicas.py

prints

    step 5: replica 2 dies
    20 steps, all parameters equal: True
"""

import os
import signal
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torchft import Manager
from torchft.coordination import LighthouseServer
from torchft.process_group import ProcessGroupWrapper

import afflux

STEPS, DIES_IN, COMES_IN = 20, 5, 12
LIMIT = timedelta(seconds=60)


class ProcessGroupAfflux(ProcessGroupWrapper):
    """The replicas' process group; torchft makes it anew when other replicas are there."""

    def _create_pg(self, store: Any, rank: int, world_size: int) -> dist.ProcessGroup:
        return afflux.process_group(store, rank, world_size, LIMIT, name="replicas")


def train(replica: int, lighthouse: str, come: Any, ends: Any) -> None:
    """Train at one replica, with those that are there."""
    torch.manual_seed(replica)
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    store = dist.TCPStore("localhost", 0, is_master=True)  # type: ignore[attr-defined]
    manager = Manager(
        pg=ProcessGroupAfflux(LIMIT), load_state_dict=model.load_state_dict,
        state_dict=model.state_dict, min_replica_size=2, rank=0, world_size=1, timeout=LIMIT,
        store_addr="localhost", store_port=store.port, lighthouse_addr=lighthouse,
        replica_id=f"replica{replica}", use_async_quorum=False,
    )  # fmt: skip
    if replica == 3:
        come.set()
    while (number := manager.current_step()) < STEPS:
        if number == DIES_IN and replica == 2:
            print(f"step {number}: replica 2 dies", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if number == COMES_IN:
            come.wait()
        manager.start_quorum()
        generator = torch.Generator().manual_seed(1000 * number + replica)
        optimizer.zero_grad()
        model(torch.randn(16, 10, generator=generator)).square().mean().backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
        if manager.should_commit():
            optimizer.step()
    ends.put(torch.cat([each.detach().flatten() for each in model.parameters()]).tolist())
    manager.shutdown(wait=False)


if __name__ == "__main__":
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10_000)
    context = mp.get_context("spawn")
    come, ends = context.Event(), context.Queue()
    shared = lighthouse.address(), come, ends
    replicas = [context.Process(target=train, args=(each, *shared)) for each in range(3)]
    for process in replicas:
        process.start()
    replicas[2].join()
    context.Process(target=train, args=(3, *shared)).start()
    found = [ends.get() for _ in replicas]
    print(f"{STEPS} steps, all parameters equal: {all(each == found[0] for each in found)}")
