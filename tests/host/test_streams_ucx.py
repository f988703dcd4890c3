"""Streams that UCX carries, between hosts in network namespaces: bits, choice, failures."""

import importlib.util
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming.carrier import takes_ucx
from afflux.group.settings.carrier import Lacks, lacks
from afflux.group.settings.variables import Settings, SettingsError
from afflux.group.store.exchange import StepFailed
from tests.support.host.all_reduces import LARGE, are_right, digest, drawn, reductions, together
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values

OVER_UCX = {"AFFLUX_AGGREGATOR": "auto", "AFFLUX_CARRIER": "ucx", "UCX_TLS": "tcp"}
OVER_TCP = {"AFFLUX_AGGREGATOR": "auto", "AFFLUX_CARRIER": "tcp"}
BY_DEVICES = {"AFFLUX_AGGREGATOR": "auto", "AFFLUX_CARRIER": "auto"}

needs_ucx = pytest.mark.skipif(
    importlib.util.find_spec("libucx") is None, reason="the package libucx is not installed"
)


def everything(rank, size):
    found = reductions(rank, None) | together(rank, size, None)
    for count in (0, 1, 777, LARGE // 4):
        whole = drawn((size * count,), torch.float32, rank, 32)
        own = torch.empty(count)
        dist.reduce_scatter_tensor(own, whole)
        parts = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(parts, own)
        found[f"parts {count}"] = digest(*parts)
        for root in range(size):
            dist.broadcast(whole, root)
            found[f"broadcast {count} {root}"] = digest(whole)
    return found, afflux.statistics()


@needs_ucx
@pytest.mark.parametrize("threads", [pytest.param("1", marks=pytest.mark.long), "2"])
def test_all_collectives_have_the_bits_of_tcp(threads):
    with network(hosts=3, aggregators=0, gbit=None) as made:
        found = [
            values(
                run_ranks(
                    everything, 3, hosts=made.hosts,
                    environment={**environment, "AFFLUX_THREADS": threads},
                )
            )
            for environment in (OVER_TCP, OVER_UCX)
        ]  # fmt: skip
    for (right, by_tcp), (digests, by_ucx) in zip(*found, strict=True):
        assert {name for name in right if digests[name] != right[name]} == set()
        assert (by_tcp["carrier"], by_ucx["carrier"]) == ("tcp", "ucx")
        assert by_ucx["threads"] == int(threads)
        for name in ("topology", "operations_engine", "operations_gloo", "bytes"):
            assert by_ucx[name] == by_tcp[name]


def sums_by_host(rank, size):
    return are_right(rank, size), afflux.statistics()


@needs_ucx
def test_hosts_with_several_ranks():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        outcomes = run_ranks(sums_by_host, 4, hosts=made.hosts, environment=OVER_UCX)
    for right, statistics in values(outcomes):
        assert all(right)
        assert (statistics["carrier"], statistics["topology"]) == ("ucx", "streams by host")


def killed(rank, size):
    tensor = torch.ones(5_000_000)
    dist.all_reduce(tensor)
    if rank == 1:
        dist.all_reduce(tensor, async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        while True:
            dist.all_reduce(tensor)
    except RuntimeError as error:
        return str(error), time.monotonic() - began


@needs_ucx
def test_a_rank_that_is_killed_is_named():
    with network(hosts=3, aggregators=0, gbit=None) as made:
        outcomes = run_ranks(killed, 3, hosts=made.hosts, environment=OVER_UCX)
    texts = [outcomes[rank].value for rank in (0, 2)]
    assert all(seconds < 10 for _, seconds in texts)
    assert all("rank " in text for text, _ in texts)
    assert any("rank 1" in text for text, _ in texts)


def carrier(rank, size):
    dist.barrier()
    return afflux.statistics()["carrier"]


def test_without_rdma_auto_is_tcp():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        found = values(run_ranks(carrier, 2, hosts=made.hosts, environment=BY_DEVICES))
    assert found == ["tcp"] * 2


def test_ranks_must_agree():
    environment = {**OVER_TCP, "BAD_RANK": "1", "BAD": "AFFLUX_CARRIER=auto"}
    with network(hosts=2, aggregators=0, gbit=None) as made:
        outcomes = run_ranks(carrier, 2, hosts=made.hosts, environment=environment)
    for each in outcomes:
        assert "the ranks disagree on AFFLUX_CARRIER: rank 0: tcp; rank 1: auto" in str(each)


@pytest.mark.parametrize("text", ["", "rdma", "TCP"])
def test_other_carriers_are_refused(text):
    with pytest.raises(SettingsError, match=r"AFFLUX_CARRIER=.*must be tcp, ucx or auto"):
        Settings.from_environment({"AFFLUX_CARRIER": text})


NO_UCX = Lacks("no UCX library can be used", "no UCX library can be used")
NO_RDMA = Lacks("", "the host has no RDMA device")


@pytest.mark.parametrize(
    ("setting", "ranks", "aggregator", "taken"),
    [
        ("tcp", [Lacks(), Lacks()], False, False),
        ("auto", [Lacks(), Lacks()], False, True),
        ("auto", [Lacks(), NO_RDMA], False, False),
        ("auto", [Lacks(), Lacks()], True, False),
        ("ucx", [NO_RDMA, NO_RDMA], False, True),
    ],
)
def test_choice(setting, ranks, aggregator, taken):
    assert takes_ucx(setting, dict(enumerate(ranks)), aggregator) is taken


def test_what_was_asked_for_and_is_missing():
    with pytest.raises(StepFailed, match="AFFLUX_CARRIER=ucx, but rank 3: no UCX library"):
        takes_ucx("ucx", {2: NO_RDMA, 3: NO_UCX}, False)
    with pytest.raises(StepFailed, match="an aggregator of streams has TCP connections alone"):
        takes_ucx("ucx", {0: Lacks()}, True)


def test_tcp_opens_no_library():
    assert lacks(Settings(carrier="tcp")).ucx == "AFFLUX_CARRIER=tcp"
