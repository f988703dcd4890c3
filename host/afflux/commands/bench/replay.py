"""The small calls of inference, in a row: `afflux bench --replay decode`.

A transformer of 48 layers whose matrices are spread over ranks (tensor parallelism: M. Shoeybi et
al., Megatron-LM, 2019, section 3) sums its hidden state twice a layer: 96 all-reduces for each
token, one after the other, as each layer needs the last one's result.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from afflux.commands.bench.catalogue import REPLAYS
from afflux.commands.bench.contenders import Contender
from afflux.commands.bench.registry import Row

__all__ = ["CALLS", "SIZES", "replay"]

CALLS = 96
SIZES = (8 << 10, 16 << 10, 48 << 10)
"""Bytes of the hidden states of a token, or of a few, in bfloat16."""

_TYPES = {"afflux": torch.bfloat16, "gloo": torch.bfloat16, "mpi": torch.float32}
"""MPI has no bfloat16: it sums as many bytes of float32."""

_WARMUP = 3


def replay(
    contenders: Sequence[Contender],
    control: Any,
    tokens: int,
    show: Callable[[str], None],
) -> list[Row]:
    """Time tokens with each contender in turn, and show them. Collective.

    Args:
        contenders: The first is Afflux.
        control: A group that is not timed.
        tokens: How many are timed for each size and contender.
        show: Prints a line, at rank 0.

    Returns:
        A row for each size: seconds of a token at the slowest rank, median and 99th percentile.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    names = [each.name for each in contenders]
    show(f"# decode: {CALLS} all-reduces of bfloat16 a token, one after the other; {tokens} tokens")
    show("#   bytes " + "".join(f"{f'{name} p50 us':>16}{f'{name} p99 us':>16}" for name in names))
    rows: list[Row] = []
    for size in SIZES:
        # Small integers, whose sums are exact in any order.
        numbers = torch.arange(size // 2).remainder(7)
        given = [numbers[: size // _TYPES[n].itemsize].add(rank).to(_TYPES[n]) for n in names]
        right = numbers.mul(ranks) + ranks * (ranks - 1) // 2
        row: Row = {
            "bench": "replay", "what": REPLAYS[0], "ranks": ranks, "bytes": size, "calls": CALLS,
            "tokens": tokens, "same_bits": None, "out_of_place_wrong": 0, "wrong": 0,
        }  # fmt: skip
        tensors = [
            each.empty(own.numel(), own.dtype) for each, own in zip(contenders, given, strict=True)
        ]
        took = torch.zeros(len(contenders), tokens, dtype=torch.float64)
        for token in range(-_WARMUP, tokens):
            for n, (contender, tensor) in enumerate(zip(contenders, tensors, strict=True)):
                dist.barrier(control)
                seconds = _token(contender, tensor, given[n])
                if token >= 0:
                    took[n, token] = seconds
        wrong = torch.tensor(
            [int((each.float() != right[: each.numel()]).sum()) for each in tensors]
        )
        dist.all_reduce(took, dist.ReduceOp.MAX, control)
        dist.all_reduce(wrong, group=control)
        line = f"{size:9} "
        for name, times, count in zip(names, took.numpy(), wrong.tolist(), strict=True):
            p50, p99 = (float(np.percentile(times, share)) for share in (50, 99))
            row |= {f"{name}_p50_s": p50, f"{name}_p99_s": p99, f"{name}_wrong": count}
            row["wrong"] += count
            line += f"{p50 * 1e6:16.0f}{p99 * 1e6:16.0f}"
        show(line + (f"   {row['wrong']} elements wrong" if row["wrong"] else ""))
        rows.append(row)
    return rows


def _token(contender: Contender, tensor: torch.Tensor, given: torch.Tensor) -> float:
    """Return the seconds of the calls of one token, each with a tensor that was just written."""
    began = time.perf_counter()
    for _ in range(CALLS):
        tensor.copy_(given)
        contender.all_reduce(tensor, "sum")
    return time.perf_counter() - began
