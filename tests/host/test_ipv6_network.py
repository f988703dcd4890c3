"""Hosts that have addresses of IPv6 only, each in a network namespace of its own."""

import re

import numpy as np
import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.autotune import calibration
from afflux.group.forming import plans
from afflux_sim.golden import numbers
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
    return tensor.numpy().tobytes(), (found["topology"], found["aggregators"], found["lanes"])


def check(outcomes, topology):
    """Check that all ranks have the golden model's bits, and their way."""
    found = values(outcomes)
    want = numbers.all_reduce([tensor_of(rank) for rank in range(len(found))], "float32", "sum")
    for bits, said in found:
        assert bits == want.tobytes()
        assert said == topology


def automatic(rank, size):
    """Make a group with no address given, in which shards win the calibration."""
    calibration._WORTH_IT = 0.0
    # The default group has had its own.
    calibration._outcomes.clear()
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    group = dist.new_group(backend="afflux")
    tensor = torch.full((100_000,), 1.0)
    dist.all_reduce(tensor, group=group)
    return tensor[7].item() == size, afflux.statistics(group), recording.messages


@pytest.mark.parametrize(
    ("mtu", "lanes"), [(1500, 5), pytest.param(9000, 16, marks=pytest.mark.long)]
)
def test_nothing_is_given_and_nothing_need_be_started(mtu, lanes):
    with network(hosts=3, aggregators=0, gbit=None, mtu=mtu, ipv4=False) as made:
        assert made.hosts[0].run("ip", "-4", "address", "show", "dev", "eth0").stdout == ""
        for right, found, warnings in values(run_ranks(automatic, 3, hosts=made.hosts)):
            assert right
            assert (found["topology"], found["aggregators"]) == ("shards", 3)
            assert found["lanes"] == lanes
            assert warnings == []


def test_shards_at_an_interface_that_is_named():
    with network(hosts=2, aggregators=0, gbit=None, links=2, ipv4=False) as made:
        for interface in ("eth1", "fd77:1::/64"):
            environment = {"AFFLUX_AGGREGATOR": "shards://", "AFFLUX_INTERFACE": interface}
            outcomes = run_ranks(summed, 4, hosts=made.hosts, environment=environment)
            check(outcomes, ("shards by host", 2, 5))


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
    interface = ("10.77.0.1", "fd77::2", "fd77::3")[rank]
    options = afflux.Options(interface=interface)
    group = dist.new_group(backend="afflux", pg_options=options)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=group)
    return tensor[5].item(), afflux.statistics(group), recording.messages


def test_hosts_of_two_families_agree_on_gloo():
    pair = (
        r"rank 0 on h0 \(10\.77\.0\.1\) and rank 1 on h1 \(fd77::2\) have addresses of "
        r"different families"
    )
    with network(hosts=3, aggregators=0, gbit=None) as made:
        outcomes = values(run_ranks(of_two_families, 3, hosts=made.hosts))
    for rank, (total, found, warnings) in enumerate(outcomes):
        assert total == 3.0
        assert found["topology"] == "gloo"
        assert re.search(pair, found["topology_reason"])
        assert len(warnings) == (rank == 0)
        assert all(re.search(pair, text) for text in warnings)
