"""Scripts that go wrong, with which the tests see that the list notices."""

import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist

from tests.conformance.script import script


@script()
def returns_another_sum(rank: int, size: int, backend: str) -> Any:
    """Return what differs by a thousandth with one backend."""
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor * (1.001 if backend == "afflux" else 1.0)


@script()
def raises_at_one_rank(rank: int, size: int, backend: str) -> Any:
    """Raise at one rank, with one backend; the other passes."""
    if rank == 1 and backend == "afflux":
        raise KeyError("planted")
    return rank


@script()
def dies(rank: int, size: int, backend: str) -> Any:
    """End a rank by a signal, with one backend, in the middle of a collective."""
    if rank == 1 and backend == "afflux":
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.all_reduce(torch.ones(1))
    return rank


@script(limit_s=4)
def hangs(rank: int, size: int, backend: str) -> Any:
    """Sleep for long, with one backend."""
    if backend == "afflux":
        time.sleep(60)
    return rank


@script()
def fails_with_gloo(rank: int, size: int, backend: str) -> Any:
    """Fail with Gloo, which the script says nothing of."""
    if backend == "gloo":
        raise KeyError("planted")
    return rank


@script()
def passes(rank: int, size: int, backend: str) -> Any:
    """Pass, after all the others."""
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor
