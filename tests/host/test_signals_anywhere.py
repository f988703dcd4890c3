"""Signal handlers that call a collective, or raise, at any step of a call that is in progress."""

import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group import engine_calls
from tests.support.host.ranks import caught, run_ranks, values
from tests.support.interruption import Interruption

_FOLDERS = tuple(str(Path(afflux.__file__).parent / each) for each in ("group", "adapters"))

# Every n-th step; how long the other rank lets this one wait, so that calls are handed over.
_WAYS = {"native": (61, 0.3), "python": (29, 0.003)}

# A bool is Gloo's where ranks share memory, too.
_EACH = pytest.mark.parametrize(
    ("adapter", "dtype"),
    [
        ("native", torch.float32),
        ("python", torch.bool),
        pytest.param("native", torch.bool, marks=pytest.mark.long),
        pytest.param("python", torch.float32, marks=pytest.mark.long),
    ],
)


def summed(dtype, group=None, count=5):
    tensor = torch.ones(count, dtype=dtype)
    dist.all_reduce(tensor, group=group)
    return bool((tensor == torch.tensor(2).to(dtype)).all())


def interrupted(step, handler, call):
    """Make a call, and run a handler at its n-th step; return whether it has so many."""
    interruption = Interruption(_FOLDERS, step, handler)
    sys.settrace(interruption)
    try:
        call()
    finally:
        sys.settrace(None)
    return interruption.handled


def nest_everywhere(rank, _size, dtype, stride, wait_s):
    """Sum at every n-th step of a sum, until it has no more; return the steps, and wrong ones."""
    wrong: list[int] = []
    # Most go on in the group's thread.
    engine_calls._SLICE_S = 0.001

    def right():
        # Of a kind that is not known.
        if not summed(dtype, count=step):
            wrong.append(step)

    step, more = 1, True
    while more:
        if rank == 0:
            more = interrupted(step, right, right)
            if not more:
                right()
        else:
            time.sleep(wait_s)
            right()
            right()
        # Both know when the steps are over.
        told = torch.tensor([float(more) if rank == 0 else 0.0])
        dist.all_reduce(told)
        more, step = bool(told), step + stride
    return step, wrong


@_EACH
def test_a_handler_may_call_at_every_step(adapter, dtype):
    environment = {"AFFLUX_AGGREGATOR": "shm://", "AFFLUX_ADAPTER": adapter}
    way = _WAYS[adapter]
    found = values(run_ranks(nest_everywhere, 2, dtype, *way, environment=environment))
    assert [wrong for _, wrong in found] == [[], []]
    assert found[0][0] > 150


def raise_everywhere(rank, size, dtype, stride, wait_s):
    """Raise at every n-th step of a sum in a group of its own; return the steps and each end."""
    engine_calls._SLICE_S = 0.001
    ends = []

    def stop():
        raise KeyboardInterrupt

    step, more = 1, True
    while more:
        group = dist.new_group(list(range(size)))
        dist.barrier()
        start = time.monotonic()
        if rank == 0:
            try:
                more = interrupted(step, stop, lambda: summed(dtype, group))  # noqa: B023
                end = "over"
            except KeyboardInterrupt:
                end = "raised"
        else:
            time.sleep(wait_s)
            end = caught(lambda: summed(dtype, group))[0] or "over"  # noqa: B023
        dist.destroy_process_group(group)
        ends.append((end, time.monotonic() - start))
        told = torch.tensor([float(more) if rank == 0 else 0.0])
        dist.all_reduce(told)
        more, step = bool(told), step + stride
    return ends


@_EACH
def test_ctrl_c_at_any_step_leaves_nobody_waiting(adapter, dtype):
    environment = {"AFFLUX_AGGREGATOR": "shm://", "AFFLUX_ADAPTER": adapter}
    stride, wait_s = _WAYS[adapter]
    # Gloo's way has four times as many steps.
    stride *= 4 if dtype == torch.bool else 1
    here, there = values(
        run_ranks(raise_everywhere, 2, dtype, stride, wait_s, environment=environment)
    )
    assert here[0][0] == "raised"
    assert here[-1][0] == "over"
    for end, seconds in there:
        assert end == "over" or "rank 0" in end
        assert "does not answer" not in end
        assert seconds < 10
    assert all(seconds < 10 for _, seconds in here)
