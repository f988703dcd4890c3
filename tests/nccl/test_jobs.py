"""The jobs of communicators: made with a secret, held by a lease, released in every case."""

import _ctypes
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.engine import SoftEngine
from tests.support.drivers.served import Served
from tests.support.host import serving
from tests.support.host.network import network
from tests.support.nccl.node import Buffer, Comm, Node, PluginError, run_nodes


def sum_of_ones(comm: Comm) -> float:
    buffers = Buffer(1 << 16), Buffer(1 << 16)
    found = comm.all_reduce(np.ones(5000, np.float32), "float32", "sum", buffers)
    return float(found[-1])


def summing(node: Node, ending: str, idle_s: float = 0.0) -> float | str:
    node.init()
    try:
        comm = node.form()
    except PluginError as error:
        return str(error)
    time.sleep(idle_s)
    found = sum_of_ones(comm)
    node.gather(None)
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if ending == "closed":
        comm.close()
    return found


def url_of(served: Served) -> str:
    return "udp://{}:{}".format(*served.address)


@pytest.fixture
def served_url():
    """Serve an aggregator."""
    served = Served(SoftEngine())
    yield url_of(served)
    served.stop()


@pytest.fixture
def one_job():
    """Serve an aggregator that has room for one job only."""
    served = Served(SoftEngine(jobs=1, slots=64), access=Access(peer_share=1.0))
    yield url_of(served)
    served.stop()


def test_jobs_are_released_at_close_after_a_crash_and_at_exit(one_job):
    environment = {"AFFLUX_AGGREGATOR": one_job, "AFFLUX_CONNECT_TIMEOUT": "5"}
    assert run_nodes(summing, 2, "closed", environment=environment) == [2.0, 2.0]
    # The process ends without a word to the plugin.
    assert run_nodes(summing, 2, "exit", environment=environment) == [2.0, 2.0]
    run_nodes(summing, 2, "killed", environment=environment, may_die=[0, 1])
    assert run_nodes(summing, 2, "closed", environment=environment) == [2.0, 2.0]


def test_jobs_are_released_after_a_connect_that_fails(one_job):
    environment = {"AFFLUX_AGGREGATOR": one_job, "AFFLUX_CONNECT_TIMEOUT": "1"}
    # The job is there, but hardly a packet of this node's gets through.
    own = {1: {"AFFLUX_TEST_LOSS": "0.99"}}
    found = run_nodes(summing, 2, "closed", environment=environment, own=own)
    assert all("join timed out: no answer from the aggregator" in str(text) for text in found)
    assert run_nodes(summing, 2, "closed", environment=environment) == [2.0, 2.0]


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    path.chmod(0o600)
    return path


def test_only_who_knows_the_secret_gets_a_job(secret_file: Path, tmp_path):
    secret = secret_file.read_text().strip().encode()
    served = Served(SoftEngine(), access=Access(secret=secret))
    try:
        url = {"AFFLUX_AGGREGATOR": url_of(served), "AFFLUX_CONNECT_TIMEOUT": "5"}
        # Node 0 alone needs it.
        own = {0: {"AFFLUX_SECRET_FILE": str(secret_file)}}
        assert run_nodes(summing, 2, "closed", environment=url, own=own) == [2.0, 2.0]
        without = run_nodes(summing, 2, "closed", environment=url)
        wrong = {0: {"AFFLUX_SECRET": "another secret of sixteen"}}
        other = run_nodes(summing, 2, "closed", environment=url, own=wrong)
    finally:
        served.stop()
    assert all("it asks for a secret, and none is set here" in text for text in without)
    assert all("it has another secret" in text for text in other)


def test_a_secret_that_others_may_read_is_refused(secret_file: Path):
    secret_file.chmod(0o644)
    environment = {
        "AFFLUX_AGGREGATOR": "udp://127.0.0.1:9",
        "AFFLUX_SECRET_FILE": str(secret_file),
    }
    (text,) = run_nodes(summing, 1, "closed", environment=environment, may_fail=True)
    assert "may be used by others than its owner: chmod 600" in text


@pytest.mark.long
def test_a_lease_is_renewed():
    served = Served(SoftEngine())
    try:
        environment = {"AFFLUX_AGGREGATOR": url_of(served), "AFFLUX_LEASE": "4"}
        assert run_nodes(summing, 2, "closed", 7.0, environment=environment) == [2.0, 2.0]
    finally:
        served.stop()


def until_it_is_silent(node: Node) -> tuple[str, float]:
    node.init()
    comm = node.form()
    assert sum_of_ones(comm) == 2.0
    node.gather(None)
    began = time.monotonic()
    with pytest.raises(PluginError) as caught:
        while True:
            sum_of_ones(comm)
    seconds = time.monotonic() - began
    comm.close()
    return str(caught.value), seconds


def test_an_aggregator_that_falls_silent():
    process, line = serving.start("--port", "0")
    url = next(word for word in line.split() if word.startswith("udp://"))
    try:
        environment = {
            "AFFLUX_AGGREGATOR": url.rstrip(",.;"),
            "AFFLUX_PEER_TIMEOUT": "1.5",
            "AFFLUX_CLOSE_TIMEOUT": "1",
            "AFFLUX_REQUIRE": "1",
        }
        found = run_nodes(
            until_it_is_silent,
            2,
            environment=environment,
            between=lambda: stop(process),
        )
    finally:
        process.kill()
        serving.finish(process)
    for text, seconds in found:
        assert "does not answer since" in text
        assert 1.4 < seconds < 6


def in_another_order(node: Node) -> float:
    """NCCL sorts handles by the ranks of heads: that of its first node may come later."""
    node.init()
    handle, listening = node.listen()
    handles = node.gather(handle)
    comm = node.connect([*handles[1:], handles[0]], listening)
    found = sum_of_ones(comm)
    comm.close()
    return found


@pytest.mark.parametrize("kind", ["udp", "streams"])
def test_the_order_of_handles_need_not_be_that_of_nodes(kind, served_url):
    url = served_url if kind == "udp" else "streams://"
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_INTERFACE": "lo"}
    environment["AFFLUX_CONNECT_TIMEOUT"] = "3"
    assert run_nodes(in_another_order, 3, environment=environment) == [3.0] * 3


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)


def unloaded(node: Node) -> bool:
    """Close everything and unload the library, as NCCL does with its last communicator."""
    node.init()
    comm = node.form()
    assert sum_of_ones(comm) == node.size
    comm.close()
    node.finalize()
    library = node.plugin.library
    _ctypes.dlclose(library._handle)
    maps = Path("/proc/self/maps").read_text()
    return library._name not in maps and len(list(Path("/proc/self/task").iterdir())) == 1


@pytest.mark.parametrize("aggregator_url", ["udp", "streams"])
def test_the_library_can_be_unloaded(aggregator_url, served_url):
    url = served_url if aggregator_url == "udp" else "streams://"
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_INTERFACE": "lo"}
    assert run_nodes(unloaded, 2, environment=environment) == [True, True]


def unresolved(node: Node, resolver: str) -> tuple[str, float]:
    """Start where the only name server is silent; return the failure, and how long it took."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 53))
        # Of this host's own file system.
        subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
        began = time.monotonic()
        with pytest.raises(PluginError) as raised:
            node.init()
        return str(raised.value), time.monotonic() - began


def test_a_silent_name_server_holds_nobody_up(tmp_path):
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
    environment = {"AFFLUX_AGGREGATOR": "udp://sums.example", "AFFLUX_CONNECT_TIMEOUT": "0.5"}
    with network(hosts=1, aggregators=0) as made:
        ((text, seconds),) = run_nodes(
            unresolved, 1, str(resolver), environment=environment, hosts=made.hosts
        )
    assert "sums.example:4700: no name server has answered in time" in text
    # The resolver itself would wait for minutes.
    assert 0.5 <= seconds < 20
