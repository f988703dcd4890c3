"""torch's own flight recorder, which torch attaches to each group from 2.15 on."""

import pickle
import time

import pytest
import torch
import torch.distributed as dist
from torch.torch_version import __version__ as torch_version

from afflux.adapters import native
from tests.support.host.ranks import run_ranks, values

pytestmark = pytest.mark.skipif(torch_version < "2.15", reason="not in this version of torch")


def states(expected):
    """Return the recorder's entries, soon after the last of `expected` is there."""
    deadline = time.monotonic() + 10
    while True:
        dumped = torch._C._distributed_c10d._dump_fr_trace(True, False, False, "afflux")
        seen = [each["state"] for each in pickle.loads(dumped)["entries"]]
        # A wait may return a moment before the recorder is told.
        if seen == expected or time.monotonic() > deadline:
            return seen
        time.sleep(0.01)


def record(rank, _size):
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor)
    if rank == 1:
        store.wait(["looked"])
    waiting = dist.all_reduce(tensor, async_op=True)
    seen = []
    if rank == 0:
        done = ["completed"] * 3
        seen = [states([*done, "scheduled"])]
        store.set("looked", "")
        waiting.wait()
        seen.append(states([*done, "completed"]))
    waiting.wait()
    return seen, dist.group.WORLD._get_sequence_number_for_group()


def test_what_is_in_flight_is_told_from_what_has_ended():
    try:
        native.load()
    except native.AdapterUnavailable as error:
        pytest.skip(str(error))
    done = ["completed"] * 3
    expected = [[*done, "scheduled"], [*done, "completed"]]
    environment = {"AFFLUX_ADAPTER": "native"}
    assert values(run_ranks(record, 2, environment=environment)) == [(expected, 3), ([], 3)]
