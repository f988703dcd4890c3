"""What goes wrong: an error at every node within a stated time, never a success that was none."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.control.client import describe
from tests.support.drivers.served import Served
from tests.support.host import serving
from tests.support.host.aggregators import aggregator, answering, closed_port
from tests.support.host.network import network
from tests.support.nccl.node import Buffer, Comm, Node, PluginError, run_nodes

ELEMENTS = 4096


def buffers_of(comm: Comm) -> tuple[Buffer, Buffer]:
    made = Buffer(4 * ELEMENTS), Buffer(4 * ELEMENTS)
    for each in made:
        comm.register(each)
    return made


def ones(comm: Comm, buffers: tuple[Buffer, Buffer]) -> float:
    found = comm.all_reduce(np.ones(ELEMENTS, np.float32), "float32", "sum", buffers)
    return float(found[-1])


def error_of(action: Any, *arguments: Any) -> tuple[str, float]:
    """Return the error that an action raises, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(PluginError) as caught:
        action(*arguments)
    return str(caught.value), time.monotonic() - began


def until_it_fails(comm: Comm, buffers: tuple[Buffer, Buffer]) -> tuple[str, float]:
    """Sum until that fails."""

    def go_on() -> None:
        while True:
            assert ones(comm, buffers) == comm.node.size

    return error_of(go_on)


def until_the_aggregator_ends(node: Node) -> tuple[str, float]:
    node.init()
    comm = node.form()
    buffers = buffers_of(comm)
    assert ones(comm, buffers) == node.size
    node.gather(None)
    found = until_it_fails(comm, buffers)
    # Later requests fail, too.
    again, _ = error_of(ones, comm, buffers)
    assert again.partition(": ")[2].partition(": ")[2] in found[0]
    comm.close()
    return found


def test_an_aggregator_that_ends():
    served = Served(SoftEngine())
    url = "udp://{}:{}".format(*served.address)
    try:
        found = run_nodes(
            until_the_aggregator_ends,
            2,
            environment={"AFFLUX_AGGREGATOR": url, "AFFLUX_REQUIRE": "1"},
            between=served.stop,
        )
    finally:
        served.stop()
    for text, seconds in found:
        assert "the job is over" in text or "has ended" in text or "no longer knows" in text
        assert seconds < 3


def stopped_peer(node: Node) -> tuple[str, float] | None:
    node.init()
    comm = node.form()
    buffers = buffers_of(comm)
    assert ones(comm, buffers) == node.size
    node.gather(None)
    if node.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return until_it_fails(comm, buffers)


@pytest.mark.parametrize("size", [2, 3])
def test_a_node_that_dies(size):
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        found = run_nodes(stopped_peer, size, environment=environment, may_die=[1])
    for rank, each in enumerate(found):
        if rank == 1:
            continue
        assert "node 1 (" in each[0] and "has gone" in each[0]
        assert each[1] < 3


def is_of_tcp(number: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as found:
        return found.family == socket.AF_INET and found.type == socket.SOCK_STREAM
    return False


def forked_and_dead(node: Node) -> tuple[str, float] | None:
    node.init()
    comm = node.form()
    buffers = buffers_of(comm)
    assert ones(comm, buffers) == node.size
    if node.rank == 1 and os.fork() == 0:
        # As a data loader's worker, which goes on; the test's own pipes are not to hold it up.
        for number in map(int, os.listdir("/proc/self/fd")):
            if not is_of_tcp(number):
                with contextlib.suppress(OSError):
                    os.close(number)
        time.sleep(8)
        os._exit(0)
    node.gather(None)
    if node.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return until_it_fails(comm, buffers)


@pytest.mark.filterwarnings("ignore:This process")
def test_a_node_that_dies_while_processes_that_it_has_forked_go_on():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        found = run_nodes(forked_and_dead, 2, environment=environment, may_die=[1])
    text, seconds = found[0]
    assert "node 1 (" in text and "has gone" in text
    assert seconds < 3


def failed_connect(node: Node) -> tuple[str, float]:
    node.init()
    handle, listening = node.listen()
    handles = node.gather(handle)
    return error_of(node.connect, handles, listening)


def test_nobody_forms_a_communicator_if_one_node_cannot():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "5"}
        # This node's route to the aggregator is another one, which leads nowhere.
        own = {2: {"AFFLUX_AGGREGATOR": "udp://no-such-host.invalid", "AFFLUX_INTERFACE": "lo"}}
        found = run_nodes(failed_connect, 3, environment=environment, own=own)
        host, port = url.removeprefix("udp://").split(":")
        jobs = describe((host, int(port)), 5.0)
    assert jobs["ok"]
    for text, seconds in found:
        assert "no-such-host.invalid" in text
        assert seconds < 4


def missing_node(node: Node) -> tuple[str, float] | None:
    node.init()
    handle, listening = node.listen()
    handles = node.gather(handle)
    if node.rank == 1:
        return None
    return error_of(node.connect, handles, listening)


def test_a_node_that_never_connects():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "1"}
        first, _, last = run_nodes(missing_node, 3, environment=environment)
    assert "timed out: node 0 waits for node 1" in first[0]
    assert first[0].partition("timed")[2] in last[0]
    assert 0.9 < first[1] < 3 and last[1] < 3


def foreign_handle(node: Node) -> tuple[str, float]:
    """Node 1 gets a handle of another plugin, or of another version of this one."""
    node.init()
    handle, listening = node.listen()
    handles = node.gather(handle)
    if node.rank == 1:
        handles = [b"afflux 9" + each[8:] for each in handles]
    return error_of(node.connect, handles, listening)


def test_a_handle_of_another_plugin_is_refused():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "1"}
        first, second = run_nodes(foreign_handle, 2, environment=environment)
    assert "node 0 waits for node 1" in first[0] and first[1] < 3
    assert "the handle of a node is not Afflux's" in second[0] and second[1] < 1


def test_nodes_that_are_told_different_aggregators():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "2"}
        own = {1: {"AFFLUX_AGGREGATOR": "streams://", "AFFLUX_INTERFACE": "lo"}}
        found = run_nodes(failed_connect, 2, environment=environment, own=own)
    for text, seconds in found:
        assert "do not agree on AFFLUX_AGGREGATOR" in text and seconds < 1


def first_words(node: Node) -> str:
    node.init()
    return node.log[0][1]


def test_an_aggregator_that_this_hosts_name_leads_to_does_not_make_lo_a_device():
    with network(hosts=1, aggregators=0) as made:
        for host, device in (("127.1", "eth0"), ("127.0.0.1", "lo"), ("localhost", "lo")):
            environment = {"AFFLUX_AGGREGATOR": f"udp://{host}"}
            (said,) = run_nodes(first_words, 1, environment=environment, hosts=made.hosts)
            assert said.startswith(f"using {device} "), host


def test_nodes_that_would_choose_different_sizes():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_NCCL_BYTES": "0:4096"}
        own = {1: {"AFFLUX_NCCL_BYTES": "0:1024"}, 2: {"AFFLUX_NCCL_BYTES": ""}}
        for size, there in ((2, "0:1024"), (3, "")):
            others = own if size == 2 else {2: own[2]}
            found = run_nodes(failed_connect, size, environment=environment, own=others)
            for text, seconds in found:
                assert "do not agree on the sizes of the all-reduces" in text and seconds < 1
                assert "AFFLUX_NCCL_BYTES" in text and text.endswith(" and 0:4096")
                assert there in text


@pytest.mark.parametrize("kind", ["nobody", "silent", "refusing"])
def test_an_aggregator_that_cannot_be_had(kind):
    environment = {"AFFLUX_CONNECT_TIMEOUT": "1"}
    refusal = {"ok": False, "error": "no job is left"}
    with answering(refusal if kind == "refusing" else None) as url:
        there = f"udp://127.0.0.1:{closed_port()}" if kind == "nobody" else url
        environment["AFFLUX_AGGREGATOR"] = there
        found = run_nodes(failed_connect, 2, environment=environment)
    expected = {"nobody": "refused", "silent": "no answer in time", "refusing": "no job is left"}
    for text, seconds in found:
        assert expected[kind] in text
        assert seconds < 4


@contextlib.contextmanager
def late(url: str, seconds: float) -> Iterator[str]:
    """Yield the URL of an aggregator whose control channel answers late."""
    host, port = url.removeprefix("udp://").split(":")
    with contextlib.ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0)))

        def carry(source: socket.socket, target: socket.socket, after: float) -> None:
            with contextlib.suppress(OSError):
                while octets := source.recv(4096):
                    time.sleep(after)
                    target.sendall(octets)
                target.shutdown(socket.SHUT_WR)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    far = socket.create_connection((host, int(port)))
                    for each in (near, far):
                        open_sockets.enter_context(each)
                    for way in ((near, far, 0.0), (far, near, seconds)):
                        threading.Thread(target=carry, args=way, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"udp://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_all_steps_together_have_a_limit_that_all_nodes_obey():
    with aggregator() as url, late(url, 0.3) as there:
        variables = {"AFFLUX_CONNECT_TIMEOUT": "0.7", "AFFLUX_NCCL_JOBS": "8"}
        environment = {"AFFLUX_AGGREGATOR": there, **variables}
        found = run_nodes(failed_connect, 3, environment=environment)
    for text, _ in found:
        assert "no answer in time" in text or "has not formed in time" in text
    # Node 0 tells the others before it closes the jobs that it has.
    for _, seconds in found[1:]:
        assert 1.5 < seconds < 3.5


def in_flight(node: Node, how: str) -> tuple[str, float] | None:
    """Node 0 posts what node 1 does not, and ends it."""
    node.init()
    comm = node.form()
    buffers = buffers_of(comm)
    assert ones(comm, buffers) == node.size
    node.gather(None)
    if node.rank == 1:
        # It hears why, though it has nothing in flight; its own would be the other one's partner.
        time.sleep(1.0)
        return error_of(ones, comm, buffers)
    send, receive = buffers
    request = comm.iallreduce((send, 0), (receive, 0), ELEMENTS, "float32", "sum")
    assert request is not None
    assert comm.test(request) is None
    if how == "deregister":
        for each in buffers:
            comm.deregister(each)
            # The proxy's memory goes before the communicator does.
            each.unmap()
    comm.close()
    return None


@pytest.mark.parametrize("how", ["close", "deregister"])
def test_close_with_a_request_in_flight(how):
    with aggregator() as url:
        found = run_nodes(in_flight, 2, how, environment={"AFFLUX_AGGREGATOR": url}, may_fail=True)
    assert found[0] is None
    assert "in flight" in found[1][0] and found[1][1] < 3


def disagreeing(node: Node) -> tuple[str, float]:
    node.init()
    comm = node.form()
    send, receive = buffers_of(comm)
    node.gather(None)

    def post() -> None:
        op = "max" if node.rank == 1 else "sum"
        request = comm.iallreduce((send, 0), (receive, 0), ELEMENTS, "float32", op)
        assert request is not None
        comm.wait(request)

    return error_of(post)


def test_nodes_that_call_different_things():
    with aggregator() as url:
        found = run_nodes(disagreeing, 3, environment={"AFFLUX_AGGREGATOR": url})
    for text, seconds in found:
        assert "disagree" in text and seconds < 3


def wrong_setting(node: Node) -> str:
    return error_of(node.init)[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AFFLUX_AGGREGATOR", "tcp://10.0.0.9"),
        ("AFFLUX_AGGREGATOR", "udp://10.0.0.9:0"),
        ("AFFLUX_LANES", "17"),
        ("AFFLUX_CONNECT_TIMEOUT", "soon"),
        ("AFFLUX_INTERFACE", "no-such-interface"),
    ],
)
def test_a_setting_that_cannot_be_is_named(name, value):
    (text,) = run_nodes(wrong_setting, 1, environment={name: value})
    assert name in text and value in text


def posting_too_much(node: Node) -> tuple[int, float]:
    node.init()
    comm = node.form()
    send, receive = buffers_of(comm)
    requests: list[int] = []
    node.gather(None)
    if node.rank == 1:
        # The other node's requests pile up.
        time.sleep(0.3)
    while len(requests) < 128:
        request = comm.iallreduce((send, 0), (receive, 0), 16, "int32", "sum")
        if request is None:
            break
        requests.append(request)
    if node.rank == 0:
        for _ in range(3):
            assert comm.iallreduce((send, 0), (receive, 0), 16, "int32", "sum") is None
    while len(requests) < 200:
        comm.wait(requests[len(requests) - 100])
        request = comm.iallreduce((send, 0), (receive, 0), 16, "int32", "sum")
        assert request is not None
        requests.append(request)
    for each in requests[100:]:
        comm.wait(each)
    comm.close()
    return len(requests), 0.0


def test_more_requests_than_there_is_room_for_come_later():
    with aggregator() as url:
        found = run_nodes(posting_too_much, 2, environment={"AFFLUX_AGGREGATOR": url})
    assert found == [(200, 0.0)] * 2


def vanishing(node: Node) -> tuple[str, float]:
    node.init()
    comm = node.form()
    buffers = buffers_of(comm)
    assert ones(comm, buffers) == node.size
    node.gather(None)
    if node.rank == 1:
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
    return until_it_fails(comm, buffers)


@pytest.mark.long
def test_a_host_that_vanishes():
    with network(hosts=2, aggregators=1) as made:
        process, line = serving.start(place=made.aggregators[0])
        url = next(word for word in line.split() if word.startswith("udp://")).rstrip(",.;")
        try:
            environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "3"}
            found = run_nodes(vanishing, 2, environment=environment, hosts=made.hosts)
        finally:
            process.kill()
            serving.finish(process)
    # To node 1 the aggregator is gone first, and then nobody goes on with it.
    assert "node 1 (" in found[0][0] and "has gone" in found[0][0]
    assert 20 < found[0][1] < 35
    assert found[1][1] < 20


def test_an_aggregator_whose_process_is_killed():
    process, line = serving.start("--port", "0")
    url = next(word for word in line.split() if word.startswith("udp://")).rstrip(",.;")
    try:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_REQUIRE": "1"}
        found = run_nodes(
            until_the_aggregator_ends, 2, environment=environment, between=process.kill
        )
    finally:
        serving.finish(process)
    for text, seconds in found:
        assert "has ended" in text and seconds < 3
