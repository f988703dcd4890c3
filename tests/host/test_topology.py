"""Which way sums take: several aggregators, streams, and Gloo."""

import os
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import launched_aggregator, rendezvous
from afflux.group.forming.streams import StreamsGroup, _Joining, _Port
from afflux.group.forming.topology_choice import choose, hosts_of
from afflux.group.settings import host_address
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings
from afflux.group.store.exchange import RendezvousError
from afflux_drivers.control.client import read_counters
from tests.support.host.aggregators import aggregator, closed_port
from tests.support.host.ranks import caught, run_ranks, values

EACH_ALONE = [[0], [1], [2]]
IN_PAIRS = [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("url", "hosts", "name"),
    [
        ("auto", [[0, 1]], "gloo"),
        ("streams://", [[0, 1]], "streams"),
        ("streams://", EACH_ALONE, "streams"),
        ("streams://", IN_PAIRS, "streams by host"),
        ("streams://", [[0, 2], [1]], "streams by host"),
        ("gloo://", [[0, 1]], "gloo"),
        ("gloo://", EACH_ALONE, "gloo"),
        ("soft://", EACH_ALONE, "aggregator"),
        ("udp://a,udp://b", IN_PAIRS, "aggregator by host"),
        ("udp://a", [[0, 1]], "aggregator"),
        ("soft://", IN_PAIRS, "aggregator"),
        ("udp://a?parent=b", IN_PAIRS, "tree"),
    ],
)
def test_what_is_asked_for_is_chosen(url, hosts, name):
    chosen = choose(AggregatorUrl.parse(url), hosts, "no reason")
    assert chosen.name == name
    assert chosen.reason in (f"AFFLUX_AGGREGATOR={url}", "no reason") or "4700" in chosen.reason


@pytest.mark.parametrize(
    ("hosts", "name"), [(EACH_ALONE, "streams"), (IN_PAIRS, "streams by host")]
)
def test_without_an_address_ranks_have_streams(hosts, name):
    chosen = choose(AggregatorUrl("auto"), hosts, "")
    assert chosen.name == name
    assert chosen.reason.startswith(f"rank {hosts[1][0]} is on another host")


def test_hosts_are_in_the_order_of_their_least_ranks():
    everyone = [
        rendezvous.Introduction(AggregatorUrl("auto"), host, 16) for host in ("b", "a", "b", "c")
    ]
    assert hosts_of(everyone) == [[0, 2], [1], [3]]


def test_an_interface_is_named_in_three_ways():
    find = host_address.address_of_interface
    assert find("lo") == find("127.0.0.1") == find("127.0.0.0/8") == "127.0.0.1"
    # Not the interface's first, but this host's.
    assert find("127.0.0.9") == "127.0.0.9"
    for wrong in ("nonesuch0", "203.0.113.1", "203.0.113.0/24"):
        with pytest.raises(OSError, match=re.escape(f"AFFLUX_INTERFACE={wrong}: ")):
            find(wrong)


def test_the_own_name_does_not_lead_to_the_default_route(monkeypatch):
    """On the host of the store's server, whose name often has a loopback address there."""
    routes = {"master": "127.0.0.1", "10.0.0.2": "10.0.0.1", host_address._ELSEWHERE: "203.0.113.7"}
    monkeypatch.setattr(host_address, "local_address_towards", routes.__getitem__)
    said = [{"ports": [_Port("", "10.0.0.2", 4000)]}]

    def parts(*_):
        if not said:
            raise RendezvousError("nobody")
        return said

    exchange: Any = SimpleNamespace(parts=parts)
    group = StreamsGroup([[0], [1]], [[0, 1]], b"", "", "master")
    joining = _Joining(exchange, 0, group, Settings())
    assert joining._find_address() == "10.0.0.1"
    # If nobody says where it is, the default route is better than nothing.
    said.clear()
    assert joining._find_address() == "203.0.113.7"


def test_who_releases_a_dead_aggregator_leaves_its_successor(no_aggregators):
    url = AggregatorUrl("soft")
    first = launched_aggregator.acquire(url, "127.0.0.1", 30.0)
    first.process.kill()
    first.process.wait()
    second = launched_aggregator.acquire(url, "127.0.0.1", 30.0)
    assert second is not first
    launched_aggregator.release(first)
    assert second.runs() and not first.runs()
    assert launched_aggregator.acquire(url, "127.0.0.1", 30.0) is second
    launched_aggregator.release(second)
    assert second.runs()
    launched_aggregator.release(second)
    assert not second.runs()


@pytest.fixture
def no_aggregators():
    yield
    for each in list(launched_aggregator._launched.values()):
        launched_aggregator.release(each)


def reduce_some(rank, group):
    generator = torch.Generator().manual_seed(rank)
    results = []
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        for shape in ((5,), (70, 333)):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
                tensor = (100 * torch.randn(shape, generator=generator)).to(dtype)
                tensor[0] = 0
                dist.all_reduce(tensor, op=op, group=group)
                results.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    dist.barrier(group=group)
    return results


def in_default_group(rank, size):
    return reduce_some(rank, None), afflux.statistics()


def place(rank, size, per_host):
    """Plant a host for this rank; return the options of a group that spans them."""
    host = rank // per_host
    rendezvous.host_identity = lambda: f"host {host}"
    return afflux.Options(aggregator="streams://", interface=f"127.0.0.{host + 2}")


def over_streams(rank, size, per_host):
    group = dist.new_group(backend="afflux", pg_options=place(rank, size, per_host))
    found = reduce_some(rank, group), afflux.statistics(group)
    # Two groups at once; the second one ends last.
    again = dist.new_group(backend="afflux", pg_options=place(rank, size, per_host))
    dist.destroy_process_group(group)
    dist.all_reduce(torch.ones(1000), group=again)
    dist.destroy_process_group(again)
    return found


@pytest.mark.parametrize("loss", [pytest.param("0", marks=pytest.mark.long), "0.05"])
def test_several_aggregators_share_the_columns(loss):
    alone = values(run_ranks(in_default_group, 3, environment={"AFFLUX_AGGREGATOR": "soft://"}))
    with aggregator() as first, aggregator() as second, aggregator(lanes=7) as third:
        urls = [first, second, third]
        environment = {"AFFLUX_AGGREGATOR": ",".join(urls), "AFFLUX_TEST_LOSS": loss}
        together = values(run_ranks(in_default_group, 3, environment=environment))
        counted = [read_counters(AggregatorUrl.parse(url).addresses[0], 5.0) for url in urls]
    for results, statistics in (*alone, *together):
        assert results == alone[0][0]
        assert statistics["topology"] == "aggregator"
    assert {each["aggregators"] for _, each in together} == {3}
    assert {each["lanes"] for _, each in together} == {7}
    assert min(each["blocks_accepted"] for each in counted) > 1000


def test_one_of_several_that_is_not_there():
    port = closed_port()
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": f"{url},udp://127.0.0.1:{port}"}
        for outcome in run_ranks(in_default_group, 2, environment=environment):
            assert outcome.failed
            assert f"127.0.0.1:{port}" in outcome.message
        # Nothing is left at the first.
        assert read_counters(AggregatorUrl.parse(url).addresses[0], 5.0)["joins"] == 0


@pytest.mark.parametrize(
    ("size", "per_host"), [pytest.param(2, 1, marks=pytest.mark.long), (3, 1), (5, 2)]
)
def test_streams_give_the_bits_of_one_aggregator(size, per_host):
    alone = values(run_ranks(in_default_group, size, environment={"AFFLUX_AGGREGATOR": "soft://"}))
    for results, statistics in values(run_ranks(over_streams, size, per_host)):
        assert results == alone[0][0]
        assert statistics["topology"] == "streams" + " by host" * (per_host > 1)
        assert statistics["topology_reason"] == "AFFLUX_AGGREGATOR=streams://"
        assert statistics["engine"] == "streams"


def test_ranks_of_one_host_may_have_streams():
    environment = {"AFFLUX_AGGREGATOR": "streams://"}
    for _, statistics in values(run_ranks(in_default_group, 2, environment=environment)):
        assert (statistics["topology"], statistics["engine"]) == ("streams", "streams")


def test_all_may_be_left_to_gloo():
    environment = {"AFFLUX_AGGREGATOR": "gloo://"}
    for _, statistics in values(run_ranks(in_default_group, 2, environment=environment)):
        assert (statistics["topology"], statistics["engine"]) == ("gloo", "gloo")
        assert statistics["topology_reason"] == "AFFLUX_AGGREGATOR=gloo://"


def with_no_such_interface(rank, size):
    options = place(rank, size, 1)
    if rank == 1:
        options = afflux.Options(aggregator="streams://", interface="nonesuch0")
    return caught(lambda: dist.new_group(backend="afflux", pg_options=options))


def test_a_rank_without_the_interface_is_named_at_every_rank():
    for message, kind, seconds in values(run_ranks(with_no_such_interface, 3)):
        assert kind == "StepFailed"
        assert "rank 1: AFFLUX_INTERFACE=nonesuch0: " in message
        assert seconds < 10


def a_rank_that_ends(rank, size, per_host):
    options = replace(place(rank, size, per_host), connect_timeout_s=1.0)
    if rank == 2:
        pytest.MonkeyPatch().setattr(_Joining, "join", lambda *_: os._exit(0))
    return caught(lambda: dist.new_group(backend="afflux", pg_options=options))


@pytest.mark.parametrize("per_host", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_rank_that_ends_is_missed_at_every_rank(per_host):
    outcomes = run_ranks(a_rank_that_ends, 4, per_host)
    assert outcomes[2].kind == "died"
    for message, kind, seconds in values(outcomes[:2] + outcomes[3:]):
        assert kind == "RendezvousError"
        assert "waited for rank 2 to open a port for the other ranks" in message
        assert seconds < 10


def test_auto_goes_to_gloo_where_only_that_is_left():
    for message, _, _ in values(run_ranks(required, 2, environment={"AFFLUX_REQUIRE": "1"})):
        assert "AFFLUX_REQUIRE=1, but only Gloo is left: rank 1 is on another host" in message
        assert "rank 1: AFFLUX_INTERFACE=nonesuch0: " in message


def required(rank, size):
    place(rank, size, 1)
    options = afflux.Options(interface="nonesuch0")
    return caught(lambda: dist.new_group(backend="afflux", pg_options=options))
