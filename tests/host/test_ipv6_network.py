"""Hosts that have addresses of IPv6 only, each in a network namespace of its own."""

import re

import numpy as np
import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import plans
from afflux_sim.golden.reductions import all_reduce
from tests.support.host import serving
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.host.warnings_heard import Recording


def tensor_of(rank):
    return np.random.default_rng(rank).standard_normal(30_000).astype(np.float32)


def summed(rank, size):
    tensor = torch.from_numpy(tensor_of(rank))
    dist.all_reduce(tensor)
    found = afflux.statistics()
    return tensor.numpy().tobytes(), (
        found["topology"],
        found.get("aggregators", 0),
        found["lanes"],
    )


def check(outcomes, topology):
    """Check that all ranks have the golden model's bits, and their way."""
    found = values(outcomes)
    want = all_reduce([tensor_of(rank) for rank in range(len(found))], "float32", "sum")
    for bits, said in found:
        assert bits == want.tobytes()
        assert said == topology


def automatic(rank, size):
    """Make a group with no address given."""
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    group = dist.new_group(backend="afflux")
    tensor = torch.full((100_000,), 1.0)
    dist.all_reduce(tensor, group=group)
    return tensor[7].item() == size, afflux.statistics(group), recording.messages


@pytest.mark.parametrize("size", [3, 6])
def test_nothing_is_given_and_nothing_need_be_started(size):
    with network(hosts=3, aggregators=0, gbit=None, ipv4=False) as made:
        assert made.hosts[0].run("ip", "-4", "address", "show", "dev", "eth0").stdout == ""
        for right, found, warnings in values(run_ranks(automatic, size, hosts=made.hosts)):
            assert right
            assert found["topology"] == ("streams" if size == 3 else "streams by host")
            assert warnings == []


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.long)])
def test_streams_at_an_interface_that_is_named(size):
    with network(hosts=2, aggregators=0, gbit=None, links=2, ipv4=False) as made:
        for interface in ("eth1", "fd77:1::/64"):
            environment = {"AFFLUX_AGGREGATOR": "streams://", "AFFLUX_INTERFACE": interface}
            outcomes = run_ranks(summed, size, hosts=made.hosts, environment=environment)
            check(outcomes, ("streams" if size == 2 else "streams by host", 0, 0))


def test_an_aggregator_is_named_by_address_and_by_name():
    with network(hosts=2, ipv4=False) as made:
        there = made.aggregator
        server, line = serving.start("--port", "0", place=there)
        try:
            url = line.split()[-1]
            assert re.fullmatch(rf"udp://\[{there.address}\]:[0-9]+", url)
            for named in (url, url.replace(f"[{there.address}]", there.name)):
                environment = {"AFFLUX_AGGREGATOR": named}
                outcomes = run_ranks(summed, 2, hosts=made.hosts, environment=environment)
                check(outcomes, ("aggregator", 1, 5))
        finally:
            server.terminate()
            assert serving.finish(server) == 0


def test_a_link_local_address_is_reached_by_its_interface():
    with network(hosts=2, ipv4=False) as made:
        there = made.aggregator
        added = there.run("ip", "address", "add", "fe80::77/64", "dev", "eth0", "nodad")
        assert added.returncode == 0, added.stderr
        server, line = serving.start("--port", "0", "--host", "fe80::77%eth0", place=there)
        try:
            url = line.split()[-1]
            assert url.startswith("udp://[fe80::77%eth0]:")
            environment = {"AFFLUX_AGGREGATOR": url}
            outcomes = run_ranks(summed, 2, hosts=made.hosts, environment=environment)
            check(outcomes, ("aggregator", 1, 5))
        finally:
            server.terminate()
            assert serving.finish(server) == 0


def of_two_families(rank, size):
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    interface = ("10.77.0.1", "fd77::2", "fd77::3")[rank * 3 // size]
    options = afflux.Options(interface=interface)
    group = dist.new_group(backend="afflux", pg_options=options)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=group)
    return tensor[5].item(), afflux.statistics(group), recording.messages


@pytest.mark.parametrize("size", [3, 6])
def test_hosts_of_two_families_agree_on_gloo(size):
    pair = (
        f"rank 0 at 10.77.0.1 and rank {size // 3} at fd77::2 have addresses of different families"
    )
    with network(hosts=3, aggregators=0, gbit=None) as made:
        outcomes = values(run_ranks(of_two_families, size, hosts=made.hosts))
    for rank, (total, found, messages) in enumerate(outcomes):
        assert total == size
        assert found["topology"] == "gloo"
        assert pair in found["topology_reason"]
        warnings = [text for text in messages if "go through Gloo" in text]
        assert len(warnings) == (rank == 0)
        assert all(pair in text for text in warnings)
