"""Streams among the nodes, and to an aggregator: who sends what, and what goes wrong."""

import os
import re
import signal
import time

import numpy as np
import pytest

from afflux_drivers.aggregator.access import Access
from tests.support.host import serving
from tests.support.host.aggregators import closed_port, streams_aggregator
from tests.support.host.network import network
from tests.support.nccl.node import Buffer, Comm, Node, PluginError, run_nodes

ELEMENTS = 1 << 16
STREAMS = {"AFFLUX_AGGREGATOR": "streams://", "AFFLUX_INTERFACE": "lo"}


def ones(comm: Comm, buffers: tuple[Buffer, Buffer]) -> float:
    found = comm.all_reduce(np.ones(ELEMENTS, np.float32), "float32", "sum", buffers)
    assert (found == found[0]).all()
    return float(found[0])


def formed(node: Node) -> tuple[Comm, tuple[Buffer, Buffer]]:
    node.init()
    comm = node.form()
    buffers = Buffer(4 * ELEMENTS), Buffer(4 * ELEMENTS)
    for each in buffers:
        comm.register(each)
    return comm, buffers


def bytes_sent(node: Node) -> int:
    """Sum four times; return the bytes that the plugin says it has sent."""
    comm, buffers = formed(node)
    for _ in range(4):
        assert ones(comm, buffers) == node.size
    comm.close()
    (text,) = (text for _, text in node.log if "closed after 4 operations" in text)
    return sum(int(each) for each in re.findall(r"(\d+) bytes", text))


def test_an_aggregator_saves_the_nodes_bytes():
    whole = 4 * 4 * ELEMENTS
    assert sum(run_nodes(bytes_sent, 4, environment=STREAMS)) == 4 * whole * 3 // 2
    with streams_aggregator() as url:
        assert run_nodes(bytes_sent, 4, environment={"AFFLUX_AGGREGATOR": url}) == [whole] * 4


def test_an_aggregator_with_a_secret_that_node_0_alone_has():
    with streams_aggregator(access=Access(secret=b"0123456789abcdef")) as url:
        own = {0: {"AFFLUX_SECRET": "0123456789abcdef"}}
        found = run_nodes(bytes_sent, 3, environment={"AFFLUX_AGGREGATOR": url}, own=own)
    assert found == [4 * 4 * ELEMENTS] * 3


def until_it_fails(comm: Comm, buffers: tuple[Buffer, Buffer]) -> tuple[str, float]:
    began = time.monotonic()
    with pytest.raises(PluginError) as caught:
        while True:
            assert ones(comm, buffers) == comm.node.size
    return str(caught.value), time.monotonic() - began


def with_a_node_that_dies(node: Node) -> tuple[str, float]:
    comm, buffers = formed(node)
    assert ones(comm, buffers) == node.size
    node.gather(None)
    if node.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return until_it_fails(comm, buffers)


@pytest.mark.parametrize("size", [2, 4])
def test_a_node_that_dies(size):
    found = run_nodes(with_a_node_that_dies, size, environment=STREAMS, may_die=[1])
    for rank, each in enumerate(found):
        if rank == 1:
            continue
        text, seconds = each
        assert "node 1 has gone: " in text or ("node 1 (" in text and "has gone" in text)
        assert seconds < 3


def with_a_node_that_stops(node: Node) -> float:
    comm, buffers = formed(node)
    assert ones(comm, buffers) == node.size
    node.gather(os.getpid())
    began = time.monotonic()
    if node.rank == 1:
        # Another process lets this one go on.
        if os.fork() == 0:
            time.sleep(2.5)
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(10):
        assert ones(comm, buffers) == node.size
    comm.close()
    return time.monotonic() - began


@pytest.mark.filterwarnings("ignore:This process")
def test_a_node_that_stops_for_a_while_is_waited_for():
    environment = {**STREAMS, "AFFLUX_PEER_TIMEOUT": "0.5", "AFFLUX_CONNECT_TIMEOUT": "1"}
    assert all(took > 2 for took in run_nodes(with_a_node_that_stops, 3, environment=environment))


def until_the_aggregator_ends(node: Node) -> tuple[str, float]:
    comm, buffers = formed(node)
    assert ones(comm, buffers) == node.size
    node.gather(None)
    return until_it_fails(comm, buffers)


def test_an_aggregator_that_ends():
    process, line = serving.start("--port", "0", "--no-secret", engine=("streams",))
    url = next(word for word in line.split() if word.startswith("streams://")).rstrip(",.;")
    try:
        found = run_nodes(
            until_the_aggregator_ends,
            3,
            environment={"AFFLUX_AGGREGATOR": url, "AFFLUX_REQUIRE": "1"},
            between=process.kill,
        )
    finally:
        process.kill()
        serving.finish(process)
    for text, seconds in found:
        assert f"the aggregator at {url.removeprefix('streams://')} has ended" in text
        assert seconds < 3


def failed_connect(node: Node) -> tuple[str, float]:
    node.init()
    handle, listening = node.listen()
    handles = node.gather(handle)
    began = time.monotonic()
    with pytest.raises(PluginError) as caught:
        node.connect(handles, listening)
    return str(caught.value), time.monotonic() - began


def test_an_aggregator_that_has_another_secret():
    with streams_aggregator(access=Access(secret=b"0123456789abcdef")) as url:
        found = run_nodes(failed_connect, 3, environment={"AFFLUX_AGGREGATOR": url})
    for text, seconds in found:
        assert "does not prove that it knows the secret" in text
        assert seconds < 3


def test_an_aggregator_that_nobody_serves():
    url = f"streams://127.0.0.1:{closed_port()}"
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "0.5"}
    found = run_nodes(failed_connect, 2, environment=environment)
    for text, seconds in found:
        assert url.removeprefix("streams://") in text and "refused" in text
        assert seconds < 3


def test_a_node_that_others_would_not_find():
    with network(hosts=3, aggregators=0) as made:
        # Node 2 would look for node 1 on its own host.
        environment = {"AFFLUX_AGGREGATOR": "streams://"}
        own = {1: {"AFFLUX_INTERFACE": "lo"}}
        found = run_nodes(failed_connect, 3, environment=environment, own=own, hosts=made.hosts)
    for text, seconds in found:
        assert "node 1 listens at 127.0.0.1, where only its own host finds it" in text
        assert seconds < 2


def many(node: Node) -> float:
    """Form many communicators, and sum over all of them at once."""
    node.init()
    comms = [node.form() for _ in range(16)]
    send, receive = Buffer(4096), Buffer(4096 * len(comms))
    send.view("int32", 0, 1024)[:] = 1
    requests = [
        comm.iallreduce((send, 0), (receive, 4096 * i), 1024, "int32", "sum")
        for i, comm in enumerate(comms)
    ]
    for comm, request in reversed(list(zip(comms, requests, strict=True))):
        assert request is not None
        comm.wait(request)
    for comm in comms:
        comm.close()
    found = receive.view("int32", 0, 1024 * len(comms))
    assert (found == found[0]).all()
    return float(found[0])


def test_many_communicators_at_once():
    assert run_nodes(many, 3, environment=STREAMS) == [3.0] * 3
