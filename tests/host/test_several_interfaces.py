"""Hosts with several interfaces: all that work for all hosts carry the data, at once."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.autotune import calibration
from afflux.group.forming import host_paths, plans, rendezvous
from afflux.group.settings.host_address import own_address
from afflux.group.settings.variables import Settings, SettingsError
from benchmarks.network.launch import aggregator
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.host.warnings_heard import Recording

BOTH = {"AFFLUX_AGGREGATOR": "gloo://", "AFFLUX_INTERFACE": "eth0,eth1"}
COUNT = 500_000
"""Elements: 2 MB, of which each interface of three hosts sends a third at least."""


def sent():
    """Return the bytes that each interface of this host has sent."""
    lines = Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines()[2:]
    return {name.strip(): int(rest.split()[8]) for name, rest in (x.split(":") for x in lines)}


def carried(rank, size, url="shards://"):
    """Sum a tensor in a group of its own; return all there is to know about it."""
    calibration._WORTH_IT = 0.0
    calibration._outcomes.clear()
    host_paths._warn_of_less.cache_clear()
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    group = dist.new_group(backend="afflux", pg_options=afflux.Options(aggregator=url))
    before = sent()
    tensor = torch.arange(COUNT) * float(rank + 1)
    dist.all_reduce(tensor, group=group)
    right = torch.equal(tensor, torch.arange(COUNT) * float(size * (size + 1) // 2))
    after = sent()
    dist.barrier(group=group)
    grown = {name: after[name] - before[name] for name in after}
    found = afflux.statistics(group)
    dist.destroy_process_group(group)
    return right, found, grown, recording.messages


def checked(outcomes, aggregators):
    """Check that the sums are right at all ranks; return rank 0's warnings, and the bytes sent."""
    for right, found, _, _ in outcomes:
        assert right
        assert (found["topology"], found["aggregators"]) == ("shards", aggregators)
    assert all(messages == [] for *_, messages in outcomes[1:])
    return outcomes[0][3], [grown for _, _, grown, _ in outcomes]


def test_both_interfaces_carry_the_data():
    # As if they had other names on one host.
    other = {"BAD_RANK": "1", "BAD": "AFFLUX_INTERFACE=10.77.0.0/24, 10.77.1.0/24"}
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        outcomes = values(run_ranks(carried, 3, hosts=made.hosts, environment=BOTH | other))
    warnings, grown = checked(outcomes, 6)
    assert warnings == []
    for each in grown:
        # To the shards of two hosts, and their results: 4/3 of the tensor in all.
        assert min(each["eth0"], each["eth1"]) > COUNT * 4 // 2


def cut(made, network_number):
    """Let no UDP packet from host 1 reach host 2 on one of the networks."""
    rule = f"rule add to 10.77.{network_number}.3 ipproto udp blackhole"
    done = made.hosts[1].run("/sbin/ip", *rule.split())
    if done.returncode != 0:
        pytest.skip(f"no such rule can be made: {done.stderr.strip()}")


def pair(network_number):
    first, second = (rf"{n} on h{n} \(10\.77\.{network_number}\.{n + 1}\)" for n in (1, 2))
    return (
        "no UDP packet of data size from "
        f"rank ({first} reaches rank {second}|{second} reaches rank {first})"
    )


def test_a_pair_that_fails_on_one_interface_leaves_the_other():
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        cut(made, 1)
        outcomes = values(run_ranks(carried, 3, hosts=made.hosts, environment=BOTH))
    (warning,), grown = checked(outcomes, 3)
    assert "AFFLUX_INTERFACE only eth0 can be used by all hosts: eth1: no UDP" in warning
    assert re.search(pair(1), warning)
    assert all(each["eth1"] < COUNT < each["eth0"] for each in grown)


def test_pairs_that_fail_on_all_interfaces_leave_gloo():
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        cut(made, 0)
        cut(made, 1)
        outcomes = values(run_ranks(carried, 3, "auto", hosts=made.hosts, environment=BOTH))
    for rank, (right, found, _, messages) in enumerate(outcomes):
        assert right
        assert found["topology"] == "gloo"
        assert len(messages) == (rank == 0)
        for text in (*messages, found["topology_reason"]):
            assert re.search(f"eth0: {pair(0)}", text)
            assert re.search(f"eth1: {pair(1)}", text)


def test_an_interface_that_is_down_is_named():
    with network(hosts=2, aggregators=0, gbit=None, links=2) as made:
        assert made.hosts[1].run("/sbin/ip", "link", "set", "eth1", "down").returncode == 0
        outcomes = values(run_ranks(carried, 2, hosts=made.hosts, environment=BOTH))
    (warning,), _ = checked(outcomes, 2)
    assert "only eth0 can be used" in warning
    assert "eth1: no UDP packet of data size from rank " in warning
    assert "rank 1 on h1 (10.77.1.2)" in warning


def test_hosts_with_fewer_interfaces_limit_all():
    environment = BOTH | {"BAD_RANK": "2", "BAD": "AFFLUX_INTERFACE=eth0"}
    with network(hosts=3, aggregators=0, gbit=None, links=2) as made:
        outcomes = values(run_ranks(carried, 3, hosts=made.hosts, environment=environment))
    (warning,), _ = checked(outcomes, 3)
    assert "only eth0 can be used" in warning
    assert "eth1: rank 2 on h2 (10.77.0.3) offers only 1 interface" in warning


def test_interfaces_of_one_network_are_not_two():
    """Packets to the second would leave by the first: the kernel goes by the destination."""
    with network(hosts=2, aggregators=0, gbit=None, links=2) as made:
        for number, host in enumerate(made.hosts, start=1):
            for words in ("flush dev eth1", f"add 10.77.0.8{number}/24 dev eth1"):
                done = host.run("/sbin/ip", "address", *words.split())
                assert done.returncode == 0, done.stderr
        outcomes = values(run_ranks(carried, 2, hosts=made.hosts, environment=BOTH))
    (warning,), _ = checked(outcomes, 2)
    assert "each interface needs a network of its own" in warning


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


def planted(rank, size, interfaces):
    """Make a group in which each rank is a host with interfaces of the loopback network."""
    rendezvous.host_identity = lambda: f"host {rank}"
    texts = [f"127.0.{n}.{rank + 2}" for n in range(interfaces)]
    options = afflux.Options(aggregator="shards://", interface=",".join(texts))
    group = dist.new_group(backend="afflux", pg_options=options)
    generator = torch.Generator().manual_seed(rank)
    results = []
    for count in (1, 700, 30_000, 200_000):
        tensor = torch.randn(count, generator=generator) * 2.0 ** torch.randint(
            -20, 20, (count,), generator=generator
        )
        dist.all_reduce(tensor, group=group)
        results.append(tensor.view(torch.uint8).numpy().tobytes())
    found = afflux.statistics(group)["aggregators"]
    dist.destroy_process_group(group)
    return results, found


def test_the_bits_do_not_depend_on_the_interfaces():
    def run(interfaces):
        environment = {"AFFLUX_AGGREGATOR": "auto", "AFFLUX_TEST_LOSS": "0.02"}
        return values(run_ranks(planted, 3, interfaces, environment=environment))

    one, three = run(1), run(3)
    assert {count for _, count in one} == {3}
    assert {count for _, count in three} == {9}
    assert {tuple(results) for results, _ in one} == {tuple(results) for results, _ in three}
