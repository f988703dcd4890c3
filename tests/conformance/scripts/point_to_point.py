"""Sends and receives, and the pipelines that are made of them."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from tests.conformance.script import FLOAT_SUM, sample, script


@script()
def send_recv(rank: int, size: int, backend: str) -> Any:
    """Pass a tensor around the ring, blocking."""
    received = torch.empty(5)
    if rank == 0:
        dist.send(sample(rank, 5), 1)
        source = dist.recv(received, size - 1)
    else:
        source = dist.recv(received, rank - 1)
        dist.send(received, (rank + 1) % size)
    return [received, source]


@script()
def send_with_tags(rank: int, size: int, backend: str) -> Any:
    """Receive by tag, in the other order."""
    peer = rank ^ 1
    if peer >= size:
        return None
    works = [dist.isend(torch.full((3,), float(tag + rank)), peer, tag=tag) for tag in (7, 8)]
    received = [torch.empty(3), torch.empty(3)]
    works += [dist.irecv(received[1], peer, tag=8), dist.irecv(received[0], peer, tag=7)]
    for work in works:
        assert work is not None
        work.wait()
    return received


@script()
def recv_from_any(rank: int, size: int, backend: str) -> Any:
    """Receive from whoever sends first."""
    if rank:
        dist.send(torch.tensor([rank * 1.0]), 0)
        return None
    received = torch.empty(1)
    found = sorted((dist.recv(received), float(received)) for _ in range(size - 1))
    return [list(each) for each in found]


@script()
def batch_isend_irecv(rank: int, size: int, backend: str) -> Any:
    """Exchange with both neighbours in one batch."""
    following, before = (rank + 1) % size, (rank - 1) % size
    sent = sample(rank, 2, 3)
    received = [torch.empty(2, 3), torch.empty(2, 3)]
    operations = [
        dist.P2POp(dist.isend, sent, following, tag=1),
        dist.P2POp(dist.irecv, received[0], before, tag=1),
        dist.P2POp(dist.isend, sent * 2, before, tag=2),
        dist.P2POp(dist.irecv, received[1], following, tag=2),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


@script(bound=FLOAT_SUM)
def sends_between_collectives(rank: int, size: int, backend: str) -> Any:
    """Mix sends with collectives in flight, in different order at each rank."""
    total = sample(rank, 1000)
    received = torch.empty(4)
    if rank == 0:
        work = dist.all_reduce(total, async_op=True)
        dist.send(sample(rank, 4), 1)
    else:
        if rank == 1:
            dist.recv(received, 0)
        work = dist.all_reduce(total, async_op=True)
    assert work is not None
    work.wait()
    return [total, received if rank == 1 else None]


@script()
def send_in_subgroup(rank: int, size: int, backend: str) -> Any:
    """Send in a group whose ranks are numbered anew."""
    group = dist.new_group([size - 1, 0])
    if rank not in (0, size - 1):
        return None
    peer = size - 1 if rank == 0 else 0
    received = torch.empty(3)
    if rank == 0:
        dist.send(sample(0, 3), peer, group=group)
        dist.recv(received, peer, group=group)
    else:
        dist.recv(received, group_src=dist.get_group_rank(group, 0), group=group)
        dist.send(received * 2, group_dst=dist.get_group_rank(group, 0), group=group)
    return received


class Layer(nn.Module):
    """A stage of a pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the stage."""
        result: torch.Tensor = torch.tanh(self.linear(x))
        return result


def _pipeline(schedule: type[ScheduleGPipe] | type[Schedule1F1B], rank: int, size: int) -> Any:
    torch.manual_seed(rank)
    layer = Layer()
    stage = PipelineStage(layer, rank, size, torch.device("cpu"))
    loss = torch.nn.functional.mse_loss
    steps = schedule(stage, n_microbatches=4, loss_fn=loss)
    losses: list[torch.Tensor] = []
    output = None
    if rank == 0:
        steps.step(sample(0, 8, 8))
    else:
        last = rank == size - 1
        output = steps.step(target=sample(1, 8, 8), losses=losses) if last else steps.step()
    return [output, losses, [each.grad for each in layer.parameters()]]


@script(bound=FLOAT_SUM)
def pipeline_gpipe(rank: int, size: int, backend: str) -> Any:
    """Train a step of a pipeline, all forward passes first."""
    return _pipeline(ScheduleGPipe, rank, size)


@script(bound=FLOAT_SUM)
def pipeline_1f1b(rank: int, size: int, backend: str) -> Any:
    """Train a step of a pipeline, forward and backward in turn."""
    return _pipeline(Schedule1F1B, rank, size)
