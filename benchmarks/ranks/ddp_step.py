"""The cost of the process group in a DDP step: beside the same step that calls the engine itself.

A model of four parameters of 25 MiB, so that each is a bucket of DDP's default size, and next to no
computation that could hide anything. Three steps are timed in turn: through the process group, as
users have it; with a communication hook that calls the engine in the thread that is there, with no
queue, no other thread and no futures to complete; and through Gloo.
"""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

import afflux
from afflux.commands.bench.alternate import Entry, Plan, alternate
from afflux.commands.bench.registry import Row
from afflux.group.call.collectives import Asked
from afflux.group_statistics import group_of
from afflux.torchrun import end_with_parent, run_module

__all__ = ["main", "measure_step"]

_BUCKET_MIB = 25
_BUCKETS = 4
_TIMEOUT_S = 300.0


def measure_step(ranks: int, quick: bool, environment: dict[str, str]) -> Row:
    """Return a row: `afflux_s`, `raw_s`, `gloo_s` of a step, `overhead` = afflux_s / raw_s − 1."""
    arguments = ["--mebibytes", "1" if quick else str(_BUCKET_MIB)]
    arguments += ["--steps", "1" if quick else "3", "--repeats", "1" if quick else "5"]
    written, _ = run_module("benchmarks.ranks.ddp_step", ranks, arguments, environment)
    row: Row = written[0]
    return row


class _Model(torch.nn.Module):
    """Parameters whose gradients are `given`, whatever they are."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.zeros_like(each) for each in given])
        self.given = given

    def forward(self) -> torch.Tensor:
        parts = zip(self.parts, self.given, strict=True)
        return torch.stack([(part * each).sum() for part, each in parts]).sum()


class _Step:
    """A DDP model: one call is one step."""

    def __init__(self, group: Any, given: list[torch.Tensor], mebibytes: int) -> None:
        self.ddp = DistributedDataParallel(
            _Model(given),
            process_group=group,
            bucket_cap_mb=mebibytes,
            gradient_as_bucket_view=True,
        )

    def call(self) -> None:
        """Go forward, and backward with the exchange of gradients."""
        self.ddp.zero_grad(set_to_none=False)
        self.ddp().backward()

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients of the last step, by parameter."""
        return [part.grad for part in self.ddp.module.parts]


def _raw_hook(group: Any) -> Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]:
    """Divide and sum as DDP does without a hook, but by calling what the group calls."""
    reducer, ranks = group_of(group).reducer, group.size()

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        tensor = bucket.buffer().div_(ranks)
        plan = reducer.plan(Asked("all_reduce", tensor.dtype, tuple(tensor.shape), "sum"))
        reducer.run(plan, [], [tensor], _TIMEOUT_S, _never)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(tensor)
        return future

    return hook


def _never() -> None:
    return None


def _measure(mebibytes: int, steps: int, repeats: int) -> Row:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    timeout = timedelta(seconds=_TIMEOUT_S)
    ours, raw = (dist.new_group(backend="afflux", timeout=timeout) for _ in range(2))
    gloo = dist.new_group(backend="gloo", timeout=timeout)
    generator = torch.Generator().manual_seed(rank)
    count = mebibytes * (1 << 20) // 4
    given = [torch.randn(count, generator=generator) for _ in range(_BUCKETS)]
    called = {
        "afflux": _Step(ours, given, mebibytes),
        "raw": _Step(gloo, given, mebibytes),
        "gloo": _Step(gloo, given, mebibytes),
    }
    called["raw"].ddp.register_comm_hook(None, _raw_hook(raw))
    entries = [Entry(name, step.call) for name, step in called.items()]
    for step in called.values():
        # DDP arranges its buckets anew after the first step.
        step.call()
    timings = alternate(entries, Plan(steps, 1, repeats), dist.group.WORLD)
    equal = all(
        torch.equal(mine, other)
        for mine, other in zip(called["afflux"].gradients(), called["raw"].gradients(), strict=True)
    )
    row: Row = {
        "what": "ddp_step",
        "ranks": ranks,
        "bytes": 4 * count * _BUCKETS,
        "bucket_bytes": 4 * count,
        "density": 1.0,
        "reachable": False,
        "engine": afflux.statistics(ours)["engine"],
        "iterations": steps,
        "repeats": repeats,
        "same_bits": equal,
        "overhead": timings["afflux"].seconds / timings["raw"].seconds - 1,
        "ratio": timings["gloo"].seconds / timings["afflux"].seconds,
    }
    for name, timing in timings.items():
        row[f"{name}_s"] = timing.seconds
        row[f"{name}_runs_s"] = timing.runs_s
        row[f"{name}_cpu_s"] = sum(timing.cpu_s) / ranks
        row[f"{name}_cpu_by_rank_s"] = timing.cpu_s
    return row


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--mebibytes", type=int, required=True, help="of a bucket")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    arguments = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=_TIMEOUT_S))
    row = _measure(arguments.mebibytes, arguments.steps, arguments.repeats)
    path = arguments.folder / f"rank{dist.get_rank()}.json"
    path.write_text(json.dumps(row), encoding="utf-8")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
