"""Ranks whose larger sums an aggregator of streams makes: bits, ways, and how that fails."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming.streams import Aggregator, StreamsGroup, _Joining
from afflux.group.settings.variables import Settings
from afflux_drivers.aggregator.access import Access
from benchmarks.network.launch import aggregator
from tests.support.host.aggregators import closed_port, streams_aggregator
from tests.support.host.all_reduces import digest, drawn, reductions, together
from tests.support.host.marks import act_when
from tests.support.host.network import network
from tests.support.host.ranks import caught, run_ranks, values

AUTO = {"AFFLUX_AGGREGATOR": "auto"}
SECRET = "0123456789abcdef0123456789abcdef"
ENDS = {"AFFLUX_REQUIRE": "1"}
"""The group ends with its aggregator."""

LARGE = 1_000_003


@contextlib.contextmanager
def served(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the URL and the process of `afflux serve streams`."""
    command = [sys.executable, "-m", "afflux.commands.cli", "serve", "streams", "--port=0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1], process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


def all_of(rank, size):
    return reductions(rank, None) | together(rank, size, None), afflux.statistics()


def test_bits_are_those_of_shared_memory():
    here = values(run_ranks(all_of, 3, environment=AUTO))
    with streams_aggregator() as url:
        there = values(run_ranks(all_of, 3, environment={"AFFLUX_AGGREGATOR": url}))
    for found, statistics in there:
        assert found == here[0][0]
        assert statistics["engine"] == "streams"


def sums(rank, size):
    found = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64):
        for count in (1000, LARGE):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                tensor = drawn((count,), dtype, rank, 3)
                dist.all_reduce(tensor, op=op)
                found[f"{dtype} {count} {op}"] = digest(tensor)
    return found, afflux.statistics()["topology"]


@pytest.mark.parametrize("size", [4, *(pytest.param(n, marks=pytest.mark.long) for n in (3, 7))])
def test_hosts_with_one_rank_and_with_several(size):
    here = values(run_ranks(sums, size, environment=AUTO))
    with (
        network(hosts=3, gbit=None, aggregator_gbit=None) as made,
        aggregator(made.aggregator, "streams") as (where, _),
    ):
        environment = {"AFFLUX_AGGREGATOR": f"streams://{where}"}
        there = values(run_ranks(sums, size, hosts=made.hosts, environment=environment))
    for found, topology in there:
        assert found == here[0][0]
        assert topology == ("streams" if size == 3 else "streams by host")


def bytes_sent(rank, size, count):
    tensor = torch.ones(count)
    dist.all_reduce(tensor)
    assert tensor[-1].item() == size
    return afflux.statistics()["bytes_sent"]


@pytest.mark.parametrize(("size", "count", "sent"), [(4, LARGE, 1), (4, 1000, 3), (2, LARGE, 1)])
def test_what_a_rank_sends(size, count, sent):
    """The tensor once; small ones, and those of two ranks, to each other rank."""
    with streams_aggregator() as url:
        found = run_ranks(bytes_sent, size, count, environment={"AFFLUX_AGGREGATOR": url})
    assert values(found) == size * [4 * count * sent]


def until_it_fails(rank, size, mark):
    dist.all_reduce(torch.ones(LARGE))
    mark.touch()

    def go_on():
        while True:
            dist.all_reduce(torch.ones(LARGE))

    start = time.monotonic()
    return *caught(go_on), time.monotonic() - start


def test_an_aggregator_that_is_killed_is_named_by_all(tmp_path):
    mark = tmp_path / "summing"
    with served() as (url, process):
        killing = act_when(mark, process.kill)
        environment = {"AFFLUX_AGGREGATOR": url, **ENDS}
        outcomes = run_ranks(until_it_fails, 3, mark, environment=environment)
        killing.join()
    for message, _, _, seconds in values(outcomes):
        assert f"the aggregator at {url.removeprefix('streams://')}: " in message
        assert seconds < 10


def test_an_aggregator_that_is_stopped_is_named_at_the_timeout(tmp_path):
    mark = tmp_path / "summing"
    with served() as (url, process):
        stopping = act_when(mark, lambda: process.send_signal(signal.SIGSTOP))
        outcomes = run_ranks(
            until_it_fails, 3, mark, environment={"AFFLUX_AGGREGATOR": url}, timeout_s=3.0
        )
        stopping.join()
    where = url.removeprefix("streams://")
    said = [message for message, *_ in values(outcomes)]
    # The first one that is out of time tells the others.
    assert any(f"still waits for the results of the aggregator at {where}" in each for each in said)


def killed(rank, size):
    dist.all_reduce(torch.ones(LARGE))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return caught(lambda: dist.all_reduce(torch.ones(LARGE)))


def test_a_rank_that_is_killed_is_named_and_the_next_group_sums():
    with streams_aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        outcomes = run_ranks(killed, 3, environment=environment)
        for message, *_ in values([outcomes[0], outcomes[2]]):
            assert "1" in message and "ended" in message
        values(run_ranks(bytes_sent, 3, LARGE, environment=environment))


def test_nobody_is_there():
    url = f"streams://127.0.0.1:{closed_port()}"
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "1"}
    for each in run_ranks(bytes_sent, 2, 10, environment=environment):
        assert f"the aggregator at {url.removeprefix('streams://')}" in each.message
        assert "Connection refused" in each.message


def test_rank_0_alone_needs_the_secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    with streams_aggregator(access=Access(secret=SECRET.encode())) as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        with_it = {"BAD_RANK": "0", "BAD": f"AFFLUX_SECRET_FILE={file}"}
        values(run_ranks(bytes_sent, 3, LARGE, environment=environment | with_it))
        for each in run_ranks(bytes_sent, 3, LARGE, environment=environment):
            assert "does not prove that it knows the secret" in each.message


def test_one_peer_takes_no_more_than_its_share(monkeypatch):
    monkeypatch.setattr("afflux_drivers.aggregator.streams_server._CONNECTIONS", 4)
    with streams_aggregator(access=Access(peer_share=0.5)) as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        for each in run_ranks(bytes_sent, 4, LARGE, environment=environment):
            assert "it has no room for more connections" in each.message
        # Those of the group that did not form have gone.
        values(run_ranks(bytes_sent, 2, LARGE, environment=environment))


def test_the_command_ends_with_its_groups(tmp_path):
    mark = tmp_path / "summing"
    with served() as (url, process):
        ending = act_when(mark, process.terminate)
        environment = {"AFFLUX_AGGREGATOR": url, **ENDS}
        outcomes = run_ranks(until_it_fails, 3, mark, environment=environment)
        ending.join()
        assert process.wait(10) == 0
    for message, *_ in values(outcomes):
        assert "the aggregator at" in message


def test_more_ranks_than_it_takes_are_refused_by_their_number():
    group = StreamsGroup([[rank] for rank in range(64)], [range(64)], b"", "", "master")
    exchange: Any = SimpleNamespace(share=lambda key, members, action, patience_s: action())
    joining = _Joining(exchange, 0, group, Settings())
    with pytest.raises(OSError, match="at most 63 ranks, or hosts with several, not 64"):
        joining.join_aggregator(Aggregator(("127.0.0.1", 9), b""))
