"""A group leaves nothing in the store, however many there have been."""

import time

import pytest
import torch
import torch.distributed as dist

from tests.support.host.ranks import run_ranks, values

_LIMIT_S = 20.0


def own_keys(store):
    """Return the names of keys that are ours, Gloo's in our groups included."""
    names = [key.decode() if isinstance(key, bytes) else key for key in store.list_keys()]
    return [name for name in names if "afflux/" in name and "/wake/" not in name]


def make_many(_rank, _size, count):
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store

    def make():
        group = dist.new_group()
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == 2
        dist.destroy_process_group(group)

    for _ in range(3):
        make()
    dist.barrier()
    before = len(own_keys(store))
    dist.barrier()
    for _ in range(count):
        make()
    dist.barrier()
    # It is done in the background.
    deadline = time.monotonic() + _LIMIT_S
    while (after := len(own_keys(store))) >= before + count and time.monotonic() < deadline:
        time.sleep(0.02)
    dist.barrier()
    return before, after, own_keys(store)


@pytest.mark.parametrize(("url", "count"), [("auto", 50), ("soft://", 20)])
def test_many_groups_leave_no_keys(url, count):
    environment = {"AFFLUX_AGGREGATOR": url}
    for before, after, names in values(
        run_ranks(make_many, 2, count, environment=environment, tcp_store=True)
    ):
        # The latest groups may have ended a little differently.
        assert 0 < after < before + count, names
