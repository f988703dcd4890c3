"""Hosts with several interfaces: all that work for all hosts carry the data, at once."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import plans, rendezvous, streams
from afflux.group.settings.host_address import own_address
from afflux.group.settings.variables import Settings, SettingsError
from benchmarks.network.launch import aggregator
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.host.warnings_heard import Recording

BOTH = {"AFFLUX_AGGREGATOR": "gloo://", "AFFLUX_INTERFACE": "eth0,eth1"}
COUNT = 500_000
"""Elements: 2 MB, of which each interface of three hosts sends a third at least."""

HOST_RANKS = pytest.mark.parametrize("ranks", [1, 2], ids=["streams", "streams by host"])
"""Of each host."""
FEW_HOST_RANKS = pytest.mark.parametrize(
    "ranks",
    [pytest.param(1, marks=pytest.mark.long), 2],
    ids=["streams", "streams by host"],
)
"""The same for tests that mostly wait."""


def sent():
    """Return the bytes that each interface of this host has sent."""
    lines = Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines()[2:]
    return {name.strip(): int(rest.split()[8]) for name, rest in (x.split(":") for x in lines)}


def carried(rank, size, url="streams://"):
    """Sum a tensor in a group of its own; return all there is to know about it."""
    streams._warn_of_less.cache_clear()
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    group = dist.new_group(backend="afflux", pg_options=afflux.Options(aggregator=url))
    before = sent()
    tensor = torch.arange(COUNT) * float(rank + 1)
    dist.all_reduce(tensor, group=group)
    right = torch.equal(tensor, torch.arange(COUNT) * float(size * (size + 1) // 2))
    dist.barrier(group=group)
    after = sent()
    grown = {name: after[name] - before[name] for name in after}
    found = afflux.statistics(group)
    dist.destroy_process_group(group)
    return right, found, grown, recording.messages


def checked(outcomes, ranks):
    """Check that the sums are right at all ranks; return rank 0's warnings, and the bytes sent."""
    for right, found, _, _ in outcomes:
        assert right
        name = "streams" if ranks == 1 else "streams by host"
        assert (found["topology"], found["engine"]) == (name, "streams")
    assert all(messages == [] for *_, messages in outcomes[1:])
    return outcomes[0][3], [grown for _, _, grown, _ in outcomes]


@HOST_RANKS
def test_both_interfaces_carry_the_data(ranks):
    # As if they had other names on one host.
    other = {"BAD_RANK": str(ranks), "BAD": "AFFLUX_INTERFACE=10.77.0.0/24, 10.77.1.0/24"}
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        size = 3 * ranks
        outcomes = values(run_ranks(carried, size, hosts=made.hosts, environment=BOTH | other))
    warnings, grown = checked(outcomes, ranks)
    assert warnings == []
    for each in grown:
        # To two hosts, and results to them: 4/3 of the tensor in all.
        assert min(each["eth0"], each["eth1"]) > COUNT * 4 // 2


def cut(made, network_number):
    """Let no TCP from host 1 reach host 2 on one of the networks."""
    rule = f"rule add to 10.77.{network_number}.3 ipproto tcp blackhole"
    done = made.hosts[1].run("/sbin/ip", *rule.split())
    if done.returncode != 0:
        pytest.skip(f"no such rule can be made: {done.stderr.strip()}")


def pair(network_number, ranks):
    """Return what is said of hosts 1 and 2."""
    first, second = (
        rf"rank {n * ranks} at 10\.77\.{network_number}\.{n + 1}:[0-9]+ \(" for n in (1, 2)
    )
    return f"rank {ranks} waited for .*{second}|rank {2 * ranks} waited for .*{first}"


IMPATIENT = BOTH | {"AFFLUX_CONNECT_TIMEOUT": "2"}


@HOST_RANKS
def test_a_pair_that_fails_on_one_interface_leaves_the_other(ranks):
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        cut(made, 1)
        size = 3 * ranks
        outcomes = values(run_ranks(carried, size, hosts=made.hosts, environment=IMPATIENT))
    (warning,), grown = checked(outcomes, ranks)
    assert "AFFLUX_INTERFACE only eth0 can be used by all ranks: eth1: " in warning
    assert re.search(pair(1, ranks), warning)
    assert all(each["eth1"] < COUNT < each["eth0"] for each in grown)


@FEW_HOST_RANKS
def test_pairs_that_fail_leave_gloo(ranks):
    environment = IMPATIENT | {"AFFLUX_INTERFACE": "eth1", "GLOO_SOCKET_IFNAME": "eth0"}
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        cut(made, 1)
        size = 3 * ranks
        outcomes = values(
            run_ranks(carried, size, "auto", hosts=made.hosts, environment=environment)
        )
    for rank, (right, found, _, messages) in enumerate(outcomes):
        assert right
        assert found["topology"] == "gloo"
        told = [text for text in messages if "go through Gloo" in text]
        assert len(told) == (rank == 0)
        for text in (*told, found["topology_reason"]):
            assert re.search(pair(1, ranks), text)


@FEW_HOST_RANKS
def test_an_interface_that_is_down_is_named(ranks):
    with network(hosts=2, aggregators=0, gbit=None, links=2) as made:
        assert made.hosts[1].run("/sbin/ip", "link", "set", "eth1", "down").returncode == 0
        size = 2 * ranks
        outcomes = values(run_ranks(carried, size, hosts=made.hosts, environment=IMPATIENT))
    (warning,), _ = checked(outcomes, ranks)
    assert "only eth0 can be used" in warning
    assert re.search(rf"eth1: .*rank (0 at 10\.77\.1\.1|{ranks} at 10\.77\.1\.2):", warning)


@HOST_RANKS
def test_hosts_with_fewer_interfaces_limit_all(ranks):
    environment = BOTH | {"BAD_RANK": str(2 * ranks), "BAD": "AFFLUX_INTERFACE=eth0"}
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        size = 3 * ranks
        outcomes = values(run_ranks(carried, size, hosts=made.hosts, environment=environment))
    (warning,), _ = checked(outcomes, ranks)
    assert "only eth0 can be used" in warning
    assert f"eth1: rank {2 * ranks} offers only 1 of the interfaces" in warning


def test_packets_to_aggregators_in_two_networks_leave_by_both():
    """Nothing is set: the route to each aggregator decides."""
    with contextlib.ExitStack() as held:
        made = held.enter_context(network(hosts=2, aggregators=1, links=2, gbit=None))
        server, urls = made.aggregator, []
        for address in server.addresses.values():
            there, _ = held.enter_context(aggregator(replace(server, address=address)))
            urls.append(f"udp://{there}")
        environment = {"AFFLUX_AGGREGATOR": "gloo://"}
        body = (carried, 2, ",".join(urls))
        outcomes = values(run_ranks(*body, hosts=made.hosts, environment=environment))
    for right, found, grown, messages in outcomes:
        assert right
        assert (found["topology"], found["aggregators"]) == ("aggregator", 2)
        # A half each.
        assert min(grown["eth0"], grown["eth1"]) * 2.5 > COUNT * 4
        assert messages == []


@pytest.mark.parametrize("text", ["eth0,eth0", "eth0,", ",", ""])
def test_a_list_that_makes_no_sense_is_refused(text):
    with pytest.raises(SettingsError, match="must be an interface, or several different ones"):
        Settings.from_environment({"AFFLUX_INTERFACE": text})


def test_options_take_a_list_and_the_first_counts_where_one_does():
    settings = afflux.Options(interface="127.0.0.1, 127.0.0.2").over(Settings())
    assert settings.interface == ("127.0.0.1", "127.0.0.2")
    assert own_address(settings.interface, None) == "127.0.0.1"


def planted(rank, size, hosts, interfaces):
    """Make a group whose ranks are hosts with interfaces of the loopback network."""
    host = rank * hosts // size
    rendezvous.host_identity = lambda: f"host {host}"
    texts = [f"127.0.{n}.{host + 2}" for n in range(interfaces)]
    options = afflux.Options(aggregator="streams://", interface=",".join(texts))
    group = dist.new_group(backend="afflux", pg_options=options)
    generator = torch.Generator().manual_seed(rank)
    results = []
    for count in (1, 700, 30_000, 200_000):
        tensor = torch.randn(count, generator=generator) * 2.0 ** torch.randint(
            -20, 20, (count,), generator=generator
        )
        dist.all_reduce(tensor, group=group)
        results.append(tensor.view(torch.uint8).numpy().tobytes())
    found = afflux.statistics(group)["topology"]
    dist.destroy_process_group(group)
    return results, found


def test_the_bits_do_not_depend_on_the_interfaces():
    def run(hosts, interfaces):
        (found,) = {
            (tuple(results), topology)
            for results, topology in values(run_ranks(planted, 4, hosts, interfaces))
        }
        return found

    bits, topology = run(2, 1)
    assert topology == "streams by host"
    assert run(2, 3) == (bits, topology)
    assert run(4, 1) == run(4, 3) == (bits, "streams")
