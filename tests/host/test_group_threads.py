"""The threads of groups, and of what groups share, end with them."""

import threading

import pytest
import torch
import torch.distributed as dist

from tests.support.host.ranks import run_ranks, values

GROUPS = 20


def make_and_destroy(_rank, size):
    for number in range(GROUPS):
        group = dist.new_group(list(range(size)))
        dist.all_reduce(torch.ones(1), group=group)
        if number % 2:
            dist.destroy_process_group(group)
    dist.destroy_process_group()
    # Gloo's take their time in the background.
    return [each.name for each in threading.enumerate() if not each.name.endswith("-free")]


@pytest.mark.parametrize("url", ["shm://", "soft://"])
def test_no_thread_outlives_its_groups(url):
    environment = {"AFFLUX_AGGREGATOR": url}
    for names in values(run_ranks(make_and_destroy, 2, environment=environment, tcp_store=True)):
        assert names == ["MainThread"]
