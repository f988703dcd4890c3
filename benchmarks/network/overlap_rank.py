"""One rank of the benchmark of priorities: steps of training a network whose layers take time.

The network is VGG-16 (K. Simonyan and A. Zisserman, ICLR 2015): its layers' shares of parameters
and of operations are that network's. Its compute is *synthetic*: a layer sleeps as long as an
accelerator would compute, and its gradient is a tensor of random numbers that lies ready. So the
processors of this machine, on which all ranks run, are free for what is measured.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import afflux
from afflux.overlap.priorities import Priorities, priorities_hook
from afflux.torchrun import end_with_parent

__all__ = ["CONTENDERS", "ROW_MARK", "Layer", "layers", "main", "network"]

ROW_MARK = "row: "

CONTENDERS = ("alone", "gloo", "own", "arrival", "priorities")
"""No communication; DDP over Gloo; DDP over Afflux; messages in the order of the backward pass,
steps deferred; messages by priority, steps deferred."""

_TIMEOUT_S = 60.0

_FIRST_STEPS = 2
"""That are not measured: DDP forms its buckets anew after the first."""

_CONVOLUTIONS = (
    (3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56), (256, 256, 56),
    (256, 256, 56), (256, 512, 28), (512, 512, 28), (512, 512, 28), (512, 512, 14), (512, 512, 14),
    (512, 512, 14),
)  # fmt: skip
"""Channels in and out, and the side of the output, of 3x3 convolutions."""

_CLASSIFIER = ((25088, 4096), (4096, 4096), (4096, 1000))
"""Features in and out."""


@dataclass(frozen=True)
class Layer:
    """A layer's parameters, and its multiplications for one picture."""

    name: str
    parameters: int
    operations: int


def layers() -> list[Layer]:
    """Return VGG-16's layers with parameters, in its order."""
    found = [
        Layer(f"conv{number}", 9 * before * after + after, 9 * before * after * side * side)
        for number, (before, after, side) in enumerate(_CONVOLUTIONS, 1)
    ]
    found += [
        Layer(f"fc{number}", before * after + after, before * after)
        for number, (before, after) in enumerate(_CLASSIFIER, 1)
    ]
    return found


class _Compute(torch.autograd.Function):
    """Takes as long as it is told, forward and backward."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor, layer: Any) -> torch.Tensor:
        """Take the weight, then sleep."""
        ctx.layer = layer
        found = values + weight[:1]
        time.sleep(layer.forward_s)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Sleep twice as long, as the gradients of inputs and weights are computed."""
        time.sleep(2 * ctx.layer.forward_s)
        # Another tensor of the same memory, which autograd need not copy.
        return gradients[0], ctx.layer.gradient.detach(), None


class _Synthetic(nn.Module):
    def __init__(self, count: int, forward_s: float, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count))
        self.forward_s = forward_s
        generator = torch.Generator().manual_seed(1000 * rank + count)
        self.gradient = torch.randn(count, generator=generator)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Compute."""
        found: torch.Tensor = _Compute.apply(values, self.weight, self)
        return found


def network(shrink: int, forward_s: float, rank: int) -> nn.Sequential:
    """Return VGG-16's layers.

    Args:
        shrink: The divisor of parameters.
        forward_s: Time that all layers take together, forward.
        rank: Gradients differ by rank.
    """
    made = nn.Sequential()
    operations = sum(each.operations for each in layers())
    for each in layers():
        count = max(1, each.parameters // shrink)
        seconds = forward_s * each.operations / operations
        made.add_module(each.name, _Synthetic(count, seconds, rank))
    return made


class _Contender:
    """A model and its optimiser, in a group.

    Args:
        name: One of `CONTENDERS`.
        given: The command line's.
    """

    def __init__(self, name: str, given: Any) -> None:
        rank = dist.get_rank()
        self.group = self._group(name, given)
        self.ddp = DistributedDataParallel(
            network(given.shrink, given.forward, rank),
            process_group=self.group,
            gradient_as_bucket_view=True,
        )
        self.alone = name == "alone"
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-3)
        self.state: Priorities | None = None
        if name in ("arrival", "priorities"):
            self.state = Priorities(
                self.ddp,
                self.optimizer,
                message_bytes=given.message,
                in_order=name == "priorities",
                observe=given.timelines is not None,
                group=self._group(name, given),
            )
            self.ddp.register_comm_hook(self.state, priorities_hook)
        self.inputs = torch.zeros(1, requires_grad=True)

    @staticmethod
    def _group(name: str, given: Any) -> Any:
        timeout = timedelta(seconds=_TIMEOUT_S)
        if name in ("alone", "gloo"):
            return dist.new_group(backend="gloo", timeout=timeout)
        options = afflux.Options(aggregator=f"udp://{given.aggregator}")
        return dist.new_group(backend="afflux", timeout=timeout, pg_options=options)

    def step(self) -> None:
        """Train a step, as users write it."""
        self.optimizer.zero_grad()
        if self.alone:
            with self.ddp.no_sync():
                self.ddp(self.inputs).sum().backward()
        else:
            self.ddp(self.inputs).sum().backward()
        self.optimizer.step()

    def end(self) -> None:
        """Wait for what is still under way."""
        if self.state is not None:
            self.state.flush()

    def mark(self) -> torch.Tensor:
        """Return what all contenders must have trained to."""
        return torch.stack([each.detach().double().sum() for each in self.ddp.parameters()])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aggregator", required=True)
    parser.add_argument("--shrink", type=int, required=True)
    parser.add_argument("--forward", type=float, required=True)
    parser.add_argument("--message", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS))
    parser.add_argument("--timelines", type=Path)
    given = parser.parse_args(argv)
    end_with_parent()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=2 * _TIMEOUT_S))
    contenders = {name: _Contender(name, given) for name in given.contenders}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for each in contenders.values():
        for _ in range(_FIRST_STEPS):
            each.step()
        each.end()
        if each.state is not None:
            each.state.record.reset()
    for _ in range(given.repeats):
        for name, each in contenders.items():
            dist.barrier()
            started = time.perf_counter()
            for _ in range(given.steps):
                each.step()
            each.end()
            took = torch.tensor((time.perf_counter() - started) / given.steps)
            dist.all_reduce(took)
            times[name].append(took.item() / dist.get_world_size())
    marks = {name: each.mark() for name, each in contenders.items() if name != "alone"}
    first = next(iter(marks.values()))
    row: dict[str, Any] = {
        name: {"runs_s": times[name], "wrong": int(not torch.allclose(mark, first, rtol=1e-3))}
        for name, mark in marks.items()
    }
    if "alone" in contenders:
        row["alone"] = {"runs_s": times["alone"], "wrong": 0}
    for name, each in contenders.items():
        if each.state is not None:
            row[name]["statistics"] = each.state.statistics()
            if given.timelines is not None:
                each.state.write_timeline(given.timelines / f"{name}-%r.json")
    some = next(iter(contenders.values())).ddp
    row["bytes"] = sum(4 * each.numel() for each in some.parameters())
    if dist.get_rank() == 0:
        print(ROW_MARK + json.dumps(row), flush=True)
    for each in contenders.values():
        if each.state is not None:
            each.state.close()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
