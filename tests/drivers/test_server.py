"""The aggregator on real sockets against clients that mean no good, or do not know better."""

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, describe, read_counters
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import registers, wire
from tests.scenarios.ticket_frames import TicketFrames
from tests.support.drivers.frames_only import FramesOnly
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.ranks import Ranks
from tests.support.drivers.served import Served
from tests.support.drivers.tensors import gaussian


@pytest.fixture(params=["one thread", "three threads", "frames"])
def served(no_threads_left: None, request: pytest.FixtureRequest) -> Iterator[Served]:
    if request.param == "frames":
        running = Served(FramesOnly())
    else:
        running = Served(SoftEngine(shares=3 if request.param == "three threads" else 1))
    try:
        yield running
    finally:
        running.stop()


def ask(served: Served, line: bytes) -> bytes:
    """Send bytes to the control channel and return what comes until the end or for a while."""
    with socket.create_connection(served.address, 5) as client:
        client.settimeout(5)
        # The server may have hung up already, and that is what some tests want to see.
        with contextlib.suppress(OSError):
            client.sendall(line)
            client.shutdown(socket.SHUT_WR)
        data = b""
        while True:
            try:
                more = client.recv(65536)
            except ConnectionResetError:
                return data
            if not more:
                return data
            data += more


def await_counters(served: Served, name: str, value: int) -> None:
    for _ in range(100):
        if read_counters(served.address, 5.0)[name] >= value:
            return
        time.sleep(0.02)
    pytest.fail(f"{name} has not reached {value}")


@pytest.mark.parametrize("times", [pytest.param(4, marks=pytest.mark.long), 2])
def test_garbage_changes_no_sum(served, times):
    """Foreign, truncated, too long and corrupted datagrams, among them some with the job's key."""
    lease = create_job(served.address, 3, 8, 4, 5.0)
    generator = np.random.default_rng(1)
    source = TicketFrames(
        random.Random(1), [lease.ticket], lambda ticket, slot: (ticket.round, 0, False)
    )
    stop = threading.Event()
    sprayed = 0

    def spray() -> None:
        nonlocal sprayed
        chaos = random.Random(2)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
            foreign.connect(served.address)
            while not stop.is_set():
                payload = source.frame()[42:]
                # A JOIN with the right key does not count as garbage: it moves a worker's address.
                if payload[:1] == b"\x12":
                    continue
                foreign.send(payload + bytes(chaos.choice([0, 0, 1, 5000])))
                sprayed += 1
                time.sleep(0.001)

    sprayer = threading.Thread(target=spray)
    sprayer.start()
    try:
        with Ranks(lease.ticket, loss=0.01) as ranks:
            for dtype in times * tuple(wire.Dtype):
                tensors = [gaussian(generator, 20_000, dtype) for _ in range(3)]
                results = ranks.all_reduce(tensors, dtype, Reduction.SUM)
                assert_same_bits(results, expected(tensors, dtype, Reduction.SUM))
    finally:
        stop.set()
        sprayer.join()
    await_counters(served, "bad_address", 10)
    counters = read_counters(served.address, 5.0)
    assert sprayed > 100
    assert counters["bad_length"] > 0
    assert counters["blocks_accepted"] == ranks.blocks_sent()
    assert counters["frames_in"] == sum(counters[c.name] for c in registers.FRAME_COUNTERS)
    lease.close()


def test_datagrams_to_a_worker_from_elsewhere_do_not_reach_it(served):
    lease = create_job(served.address, 1, 4, 1, 5.0)
    with Ranks(lease.ticket) as ranks:
        worker = ranks.workers[0]
        _, port = worker._loop.lines[0].own_address
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
            for _ in range(5):
                foreign.sendto(bytes(86), ("127.0.0.1", port))
        tensor = np.ones(1000, np.float32)
        (result,) = ranks.all_reduce([tensor], wire.Dtype.FLOAT32, Reduction.SUM)
        np.testing.assert_array_equal(result, tensor)
        statistics = worker.statistics
        assert statistics.packets_received == 1 + statistics.rounds + statistics.ignored
        # A result that was late is replayed to whom asked for it.
        assert statistics.ignored <= statistics.retransmissions + statistics.probes
    lease.close()


@pytest.mark.parametrize("payload", [b"", b"x", bytes(85), bytes(86), bytes(4183), b"\x10" * 342])
def test_answers_nothing_to_garbage(served, payload):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
        foreign.connect(served.address)
        foreign.settimeout(0.2)
        foreign.send(payload)
        with pytest.raises(TimeoutError):
            foreign.recv(1)
    await_counters(served, "frames_in", 1)
    assert read_counters(served.address, 5.0)["frames_in"] == 1


def test_answers_nothing_to_data_of_a_stranger(served):
    lease = create_job(served.address, 1, 4, 1, 5.0)
    session = Session(lease.ticket, 0)
    operation = Operation(session, np.ones(9, np.int32), wire.Dtype.INT32, Reduction.SUM, (9,))
    (data,) = operation.open(0.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
        foreign.connect(served.address)
        foreign.settimeout(0.2)
        foreign.send(data)
        with pytest.raises(TimeoutError):
            foreign.recv(1)
    await_counters(served, "bad_address", 1)
    assert read_counters(served.address, 5.0)["bad_address"] == 1
    lease.close()


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (b"nonsense", "JSON object"),
        (b"[1]", "JSON object, not list"),
        (b'"\xff"', "UTF-8"),
        (b"[" * 3000, "JSON object"),
        (b"{}", "request None"),
        (b'{"request": "reboot"}', "reboot"),
        (b'{"request": "create"}', "protocol"),
        (b'{"request": "create", "protocol": 1}', "protocol 1 is not supported, only 2: update"),
        (
            b'{"request": "create", "protocol": 2, "workers": 65, "lanes": 1, "slots": 1}',
            "65 workers are more than the 64",
        ),
        (b'{"request": "create", "protocol": 2, "workers": 0, "lanes": 1, "slots": 1}', "workers"),
        (b'{"request": "create", "protocol": 2, "workers": 1, "lanes": true, "slots": 1}', "lanes"),
        (b'{"request": "create", "protocol": 2, "workers": 1, "lanes": 1, "slots": "1"}', "slots"),
        (b'{"request": "close", "job": 0, "key": "0000000000000000"}', "no job 0 with this key"),
        (b'{"request": "close", "job": 0, "key": "zz"}', "16 hexadecimal"),
        (b'{"request": "close", "job": 0, "key": "00 00 00 00 00 0"}', "16 hexadecimal"),
        (b'{"request": "close", "job": 300, "key": "0000000000000000"}', "job"),
    ],
)
def test_bad_requests_are_answered_with_a_reason(served, request_, what):
    answer = json.loads(ask(served, request_ + b"\n"))
    assert answer["ok"] is False
    assert what in answer["error"]
    assert describe(served.address, 5.0)["ok"] is True


def test_several_requests_on_one_connection(served):
    answers = ask(served, b'{"request": "describe"}\nx\n{"request": "counters"}\n{"request"')
    assert [json.loads(line)["ok"] for line in answers.splitlines()] == [True, False, True]


def test_a_line_without_end_is_cut_off(served):
    assert ask(served, b"x" * 100_000) == b""
    assert describe(served.address, 5.0)["ok"] is True


def test_many_connections_do_not_stop_it(served):
    clients = [socket.create_connection(served.address, 5) for _ in range(700)]
    try:
        # The latest may be silent for a while; those before them have been turned away.
        for client in clients:
            client.settimeout(5)
        assert clients[0].recv(1) == b""
    finally:
        for client in clients:
            client.close()
    assert describe(served.address, 5.0)["ok"] is True


def test_a_silent_connection_is_dropped(served, monkeypatch):
    monkeypatch.setattr("afflux_drivers.aggregator.control_server._IDLE_S", 0.1)
    lease = create_job(served.address, 1, 1, 1, 5.0)
    with socket.create_connection(served.address, 5) as client:
        client.settimeout(5)
        client.sendall(b'{"request": "describe"}\n')
        assert client.recv(4096).endswith(b"}\n")
        assert client.recv(1) == b""
    # One that holds a job may be silent.
    with Ranks(lease.ticket):
        pass
    lease.close()


def test_describe(served):
    assert describe(served.address, 5.0) == {
        "ok": True,
        "protocol": 2,
        "engine": "soft",
        "workers": 64,
        "lanes": 16,
        "slots": 512,
        "jobs": 8,
        "port": served.address[1],
    }


def test_a_taken_port_is_an_error(served):
    with pytest.raises(OSError, match="in use"):
        AggregatorServer(SoftEngine(), "127.0.0.1", served.address[1])


def test_a_thread_takes_no_processor_while_nothing_comes():
    """One that polled without waiting would take all of the time."""
    running = Served(SoftEngine(shares=2))
    try:
        lease = create_job(running.address, 1, 1, 1, 5.0)
        with Ranks(lease.ticket):
            before, began = time.process_time(), time.monotonic()
            time.sleep(1.0)
            used, elapsed = time.process_time() - before, time.monotonic() - began
        lease.close()
    finally:
        running.stop()
    assert used < elapsed / 4


def test_packets_come_to_the_thread_that_has_their_slots():
    """Workers join packets of one thread's slots only, as the ticket says."""
    running = Served(SoftEngine(shares=2))
    try:
        lease = create_job(running.address, 2, 5, 32, 5.0)
        tensors = [
            gaussian(np.random.default_rng(seed), 200_000, wire.Dtype.FLOAT32) for seed in range(2)
        ]
        with Ranks(lease.ticket) as ranks:
            for result in ranks.all_reduce(tensors, wire.Dtype.FLOAT32, Reduction.SUM):
                assert not isinstance(result, BaseException)
        traffic = running.server.traffic()
        lease.close()
    finally:
        running.stop()
    assert traffic["received"]["datagrams"] > 1000
    assert traffic["handed_off"] < traffic["received"]["datagrams"] / 100


def test_shares_must_be_1_to_64():
    with pytest.raises(ValueError, match="1 to 64 shares, not 65"):
        SoftEngine(shares=65)


def test_stop_without_serving_frees_the_port():
    server = AggregatorServer(SoftEngine())
    address = server.address
    server.stop()
    server.stop()
    with pytest.raises(RuntimeError, match="once"):
        server.serve_forever()
    again = AggregatorServer(SoftEngine(), *address)
    again.stop()


def test_tcp_and_udp_have_one_port(served):
    host, port = served.address
    assert host == "127.0.0.1"
    assert describe((host, port), 5.0)["port"] == port
