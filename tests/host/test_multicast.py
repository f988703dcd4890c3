"""Results to a multicast group, from the training process down: the same bits, fewer frames."""

import re

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.commands import serve
from afflux_drivers.sockets import MulticastGroup
from tests.support.drivers.groups import free_group, why_no_group
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.host.serving import finish, start


@pytest.fixture
def group():
    group = free_group()
    reason = why_no_group(group)
    if reason:
        pytest.skip(reason)
    return group


def reduce_some(rank, size):
    generator = torch.Generator().manual_seed(rank)
    results = []
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        for shape in ((5,), (100, 333)):
            tensor = (100 * torch.randn(shape, generator=generator)).to(dtype)
            dist.all_reduce(tensor)
            results.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    dist.barrier()
    return results, afflux.engine_counters() if rank == 0 else {}


@pytest.mark.parametrize("loss", [pytest.param("0", marks=pytest.mark.long), "0.05"])
def test_an_engine_that_starts_with_the_job(group, loss):
    alone = values(run_ranks(reduce_some, 3, environment={"AFFLUX_AGGREGATOR": "soft://"}))
    environment = {"AFFLUX_AGGREGATOR": f"soft://?group={group}", "AFFLUX_TEST_LOSS": loss}
    together = values(run_ranks(reduce_some, 3, environment=environment))
    for results, _ in (*alone, *together):
        assert results == alone[0][0]
    for outcomes, copies in ((alone, 3), (together, 1)):
        counters = outcomes[0][1]
        asked = counters["duplicates"] + counters["probes"]
        results_sent = counters["frames_out"] - counters["joins"]
        assert 0 <= results_sent - copies * counters["rounds"] <= asked


def test_an_engine_that_runs(group):
    process, line = start("--port", "0", "--group", str(group), "--group-ttl", "2")
    try:
        url = re.search(r"udp://\S+", line)[0]
        outcomes = values(run_ranks(reduce_some, 2, environment={"AFFLUX_AGGREGATOR": url}))
        counters = outcomes[0][1]
        asked = counters["duplicates"] + counters["probes"]
        assert 0 <= counters["frames_out"] - counters["joins"] - counters["rounds"] <= asked
    finally:
        process.terminate()
        assert finish(process) == 0


@pytest.mark.parametrize("loss", [pytest.param(0.0, marks=pytest.mark.long), 0.01])
def test_hosts_behind_a_switch(loss):
    """One frame of each result leaves the aggregator; the switch copies it."""
    with network(hosts=3, loss=loss) as made:
        group = MulticastGroup("239.77.1.9", 4799)
        server, line = start("--port", "0", "--group", str(group), place=made.aggregator)
        environment = {"AFFLUX_AGGREGATOR": re.search(r"udp://\S+", line)[0]}
        try:
            outcomes = values(run_ranks(reduce_some, 6, environment=environment, hosts=made.hosts))
            counters = outcomes[0][1]
            asked = counters["duplicates"] + counters["probes"]
            assert 0 <= counters["frames_out"] - counters["joins"] - counters["rounds"] <= asked
        finally:
            server.terminate()
            assert finish(server) == 0
    alone = values(run_ranks(reduce_some, 6, environment={"AFFLUX_AGGREGATOR": "soft://"}))
    assert all(results == alone[0][0] for results, _ in (*outcomes, *alone))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--group", "10.0.0.1:4701"], "10.0.0.1' is not an IPv4 multicast address"),
        (["--group", "239.1.2.3"], "is not an address:port"),
        (["--group-ttl", "256"], "--group-ttl: '256' is not a whole number from 1 to 255"),
    ],
)
def test_a_group_that_cannot_be_is_a_clear_error(capsys, options, said):
    with pytest.raises(SystemExit):
        serve.main(["soft", *options])
    assert said in capsys.readouterr().err
