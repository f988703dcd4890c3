"""The common behaviour of the adapters in C++ and in Python."""

import random
import time

import pytest
import torch
import torch.distributed as dist
from torch.profiler import profile

import afflux
from afflux.adapters import native
from afflux_drivers._native import Turn
from tests.support.host.ranks import caught, run_ranks, values

SHM = {"AFFLUX_AGGREGATOR": "shm://"}


def test_both_turns_mix_the_same_history():
    """Ranks with either turn compare their histories."""
    ours, theirs = Turn(), native.load().Turn()
    numbers = random.Random(1)
    for number in [0, 2**32 - 1, *(numbers.getrandbits(32) for _ in range(1000))]:
        ours.note(number)
        theirs.note(number)
        assert ours.history == theirs.history


DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float64]


def transfer(rank, _size):
    for dtype in DTYPES:
        tensor = torch.zeros(3, dtype=dtype)
        if rank == 0:
            dist.send(tensor, 1)
            dist.isend(tensor, 1).wait()
        else:
            dist.recv(tensor, 0)
            # Without the source: the backend in Python of torch 2.14 cannot say who has sent.
            dist.irecv(tensor, 0).wait()
    return afflux.statistics()["gloo"]


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_transfers_are_counted_by_the_same_names(adapter):
    environment = {**SHM, "AFFLUX_ADAPTER": adapter}
    counts = values(run_ranks(transfer, 2, environment=environment))
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    assert counts == [{f"{method} {name}": 2 for name in names} for method in ("send", "recv")]


def end_in_error(rank, _size, kind):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    before = backend.get_error()
    dist.all_reduce(torch.ones(3))
    if kind == "disagreement":
        caught(lambda: dist.all_reduce(torch.ones(3 + rank)))
    elif rank == 0:
        caught(lambda: dist.all_reduce(torch.ones(3)))
    deadline = time.monotonic() + 20
    # Idle ranks are woken.
    while backend.get_error() == before and time.monotonic() < deadline:
        time.sleep(0.01)
    return before.name, backend.get_error().name


def test_torch_is_told_how_a_group_has_failed():
    environment = {**SHM, "AFFLUX_ADAPTER": "native"}
    assert values(run_ranks(end_in_error, 2, "timeout", environment=environment, timeout_s=1)) == [
        ("SUCCESS", "TIMEOUT"),
        ("SUCCESS", "REMOTE_ERROR"),
    ]
    assert (
        values(run_ranks(end_in_error, 2, "disagreement", environment=environment))
        == [("SUCCESS", "COMM_ERROR")] * 2
    )


def closed_in_peace(_rank, _size):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    dist.all_reduce(torch.ones(3), group=group)
    dist.destroy_process_group(group)
    return backend.get_error().name


def test_a_group_that_was_closed_has_not_failed():
    environment = {**SHM, "AFFLUX_ADAPTER": "native"}
    assert values(run_ranks(closed_in_peace, 2, environment=environment)) == ["SUCCESS"] * 2


def call_everything(_rank, size):
    parts = [torch.zeros(4) for _ in range(size)]
    whole, part = torch.zeros(4 * size), torch.zeros(4)
    calls = [
        lambda: dist.all_reduce(part),
        lambda: dist.all_reduce_coalesced([part]),
        lambda: dist.broadcast(part, 0),
        lambda: dist.reduce(part, 0),
        lambda: dist.all_gather(parts, part),
        lambda: dist.all_gather_into_tensor(whole, part),
        lambda: dist.all_gather_coalesced([[each] for each in parts], [part]),
        lambda: dist.gather(part, parts if dist.get_rank() == 0 else None),
        lambda: dist.scatter(part, parts if dist.get_rank() == 0 else None),
        lambda: dist.reduce_scatter(part, parts),
        lambda: dist.reduce_scatter_tensor(part, whole),
        lambda: dist.all_to_all(parts, [each.clone() for each in parts]),
        lambda: dist.all_to_all_single(whole, whole.clone()),
        dist.barrier,
        lambda: dist.send(part, 1) if dist.get_rank() == 0 else dist.recv(part, 0),
        lambda: dist.send(part, 1) if dist.get_rank() == 0 else dist.recv(part),
        together_gathered,
        together_scattered,
    ]
    observed = []
    with (
        afflux.register_hook(after=lambda call: observed.append(call.name)),
        profile() as profiler,
    ):
        for call in calls:
            call()
    titles = {event.name for event in profiler.events() if event.name.startswith("afflux:")}
    return {title.removeprefix("afflux:") for title in titles}, set(observed)


def together_gathered():
    size = dist.get_world_size()
    with dist._coalescing_manager():
        for _ in range(2):
            dist.all_gather_into_tensor(torch.zeros(4 * size), torch.zeros(4))


def together_scattered():
    size = dist.get_world_size()
    with dist._coalescing_manager():
        for _ in range(2):
            dist.reduce_scatter_tensor(torch.zeros(4), torch.zeros(4 * size))


# The profiler's name of a method, as Gloo's events have it, by which tools find it.
TITLES = {
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_coalesced",
    "allreduce_coalesced": "all_reduce_coalesced",
    "alltoall": "all_to_all",
    "recv_anysource": "recvAnySource",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}


def test_every_call_is_seen_by_the_profiler_and_by_observers():
    environment = {**SHM, "AFFLUX_ADAPTER": "native"}
    for titles, observed in values(run_ranks(call_everything, 2, environment=environment)):
        assert len(observed) >= 14
        assert titles == {TITLES.get(name, name) for name in observed}
