"""An aggregator that has ended is noticed soon, and one that is only slow or stopped is not."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

from afflux_drivers.collective import Reduction
from afflux_drivers.control.several import JobsLease, create_jobs
from afflux_drivers.control.tree import create_tree
from afflux_drivers.errors import AffluxError, AggregatorUnreachable, DeadlineExceeded
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.ranks import Ranks, run_ranks
from tests.support.host import serving
from tests.support.host.ranks import caught
from tests.support.host.ranks import run_ranks as run_processes

SOON_S = 8.0
"""A loaded machine takes its time; without detection it took `PATIENCE_S`."""

PATIENCE_S = 30.0

SECRET = "0123456789abcdef"


class Aggregator:
    """`afflux serve` in a process of its own."""

    def __init__(self, *options: str) -> None:
        self._options = options or ("--no-secret",)
        self._start(0)

    def _start(self, port: int) -> None:
        self.process, line = serving.start("--port", str(port), *self._options)
        host, _, text = line.rpartition("udp://")[2].strip().rpartition(":")
        self.address = host, int(text)

    def end(self, how: str) -> None:
        """Let it end by a signal, or kill it and start another one on the same port."""
        number = signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL
        self.process.send_signal(number)
        serving.finish(self.process)
        if how == "restart":
            self._start(self.address[1])

    def close(self) -> None:
        if self.process.poll() is None:
            self.end("SIGKILL")


@contextlib.contextmanager
def aggregators(count: int, *options: str) -> Iterator[list[Aggregator]]:
    started: list[Aggregator] = []
    try:
        for _ in range(count):
            started.append(Aggregator(*options))
        yield started
    finally:
        for each in started:
            each.close()


@contextlib.contextmanager
def jobs(of: list[Aggregator], **options: object) -> Iterator[JobsLease]:
    lease = create_jobs([each.address for each in of], 2, 16, 8, 5.0, lease_s=60, **options)  # type: ignore[arg-type]
    try:
        yield lease
    finally:
        with contextlib.suppress(AffluxError):
            lease.close()


def reduce_ones(worker: Worker, timeout_s: float = 2 * PATIENCE_S) -> np.ndarray:
    ones = np.ones(10_000, np.float32)
    return worker.all_reduce(ones, wire.Dtype.FLOAT32, Reduction.SUM, ones.shape, timeout_s)


def lost_soon(lease: JobsLease) -> str:
    until = time.monotonic() + SOON_S
    while lease.lost is None and time.monotonic() < until:
        time.sleep(0.01)
    return lease.lost or "nothing"


@pytest.mark.parametrize(
    ("how", "count"), [("SIGKILL", 2), pytest.param("restart", 1, marks=pytest.mark.long)]
)
def test_a_worker_that_waits_notices_by_itself(how, count):
    """Of several aggregators the error names the one that has ended."""
    with aggregators(count) as running, jobs(running) as lease:
        with Ranks(*lease.tickets, peer_timeout_s=PATIENCE_S) as ranks:
            timer = threading.Timer(0.5, running[-1].end, [how])
            timer.start()
            began = time.monotonic()
            # Rank 1 never calls.
            with pytest.raises(AggregatorUnreachable) as raised:
                reduce_ones(ranks.workers[0])
            assert time.monotonic() - began < SOON_S
            timer.join()
        text = str(raised.value)
        assert "rank 0: the aggregator at {}:{} has ".format(*running[-1].address) in text
        # A worker may see the moment at which nobody listens.
        assert "has ended: it does not answer since" in text or (
            how == "restart" and "has restarted, or has ended the job, and no longer knows" in text
        )


def test_a_worker_meets_one_that_has_restarted():
    with (
        aggregators(1) as running,
        jobs(running) as lease,
        Ranks(*lease.tickets, peer_timeout_s=PATIENCE_S) as ranks,
    ):
        running[0].end("restart")
        began = time.monotonic()
        with pytest.raises(AggregatorUnreachable, match=r"has restarted, .*no such job"):
            reduce_ones(ranks.workers[1])
        assert time.monotonic() - began < SOON_S


def test_one_that_ends_tells_who_holds_its_jobs(tmp_path):
    """Also under the code that a secret gives each line."""
    path = tmp_path / "secret"
    path.write_text(SECRET, encoding="ascii")
    path.chmod(0o600)
    with (
        aggregators(1, "--secret-file", str(path)) as running,
        jobs(running, secret=SECRET.encode()) as lease,
    ):
        running[0].end("SIGTERM")
        address = "{}:{}".format(*running[0].address)
        assert lost_soon(lease) == (
            f"the job is over: the aggregator at {address}: it is ending, and job 0 with it"
        )


def test_who_holds_a_job_notices_a_broken_connection():
    with aggregators(1) as running, jobs(running) as lease:
        running[0].end("restart")
        text = lost_soon(lease)
        assert "{}:{}".format(*running[0].address) in text
        assert "the aggregator has ended: cannot reach" in text or "there is no job 0" in text


def test_the_end_of_a_parent_is_noticed():
    with aggregators(3) as running:
        parent, *leaves = (each.address for each in running)
        lease = create_tree(parent, leaves, 16, 8, 5.0, lease_s=60)
        try:
            running[0].end("SIGKILL")
            assert "the aggregator has ended: cannot reach the control channel of the " in (
                text := lost_soon(lease)
            )
            assert "{}:{}".format(*parent) in text
        finally:
            with contextlib.suppress(AffluxError):
                lease.close()


def test_one_that_is_stopped_for_a_while_is_waited_for():
    with aggregators(1) as running, jobs(running) as lease:
        with Ranks(*lease.tickets) as ranks:
            os.kill(running[0].process.pid, signal.SIGSTOP)
            timer = threading.Timer(3.0, os.kill, [running[0].process.pid, signal.SIGCONT])
            timer.start()
            for found in run_ranks([partial(reduce_ones, each) for each in ranks.workers]):
                np.testing.assert_array_equal(found, np.full(10_000, 2, np.float32))
            timer.join()
        assert lease.lost is None


def stop_the_other(rank, _size):
    store = dist.distributed_c10d._get_default_store()
    store.set(f"pid/{rank}", str(os.getpid()))
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        waiting = int(store.get("pid/0"))
        # It waits for this rank by now.
        time.sleep(0.5)
        os.kill(waiting, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(waiting, signal.SIGCONT)
        # It looks at the clock before it hears of anything.
        time.sleep(0.5)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    return tensor.unique().tolist()


def test_a_worker_that_was_stopped_itself_blames_nobody():
    environment = {"AFFLUX_AGGREGATOR": "soft://", "AFFLUX_PEER_TIMEOUT": "1"}
    outcomes = run_processes(stop_the_other, 2, environment=environment)
    assert [outcome.value for outcome in outcomes] == [[2.0], [2.0]], outcomes


def test_a_timeout_says_that_there_was_no_answer():
    with aggregators(1) as running, jobs(running) as lease:
        with Ranks(*lease.tickets, peer_timeout_s=PATIENCE_S) as ranks:
            os.kill(running[0].process.pid, signal.SIGSTOP)
            with pytest.raises(DeadlineExceeded) as raised:
                reduce_ones(ranks.workers[0], timeout_s=1.6)
            os.kill(running[0].process.pid, signal.SIGCONT)
        address = "{}:{}".format(*running[0].address)
        assert f"rank 0: the aggregator at {address} does not answer since 1." in str(raised.value)


def test_that_the_port_is_refused_is_no_proof():
    """As somebody could forge the message, while the aggregator's answers get lost for a while."""
    with aggregators(1) as running, jobs(running) as lease:
        there = running[0].address
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay:
            relay.bind(("127.0.0.1", 0))
            ticket = replace(
                lease.tickets[0],
                port=relay.getsockname()[1],
                control_host=there[0],
                control_port=there[1],
            )
            worker = Worker([ticket], 0, peer_timeout_s=2.5)
            passing = threading.Thread(target=_pass_on, args=(relay, there))
            passing.start()
            worker.join(5.0)
            passing.join()
        try:
            with pytest.raises(AggregatorUnreachable) as raised:
                reduce_ones(worker)
        finally:
            worker.close()
        text = str(raised.value)
        assert "timed out: rank 0: " in text and "does not answer since 2." in text
        assert "(its host refuses the port)" in text


def _pass_on(relay: socket.socket, there: tuple[str, int]) -> None:
    """Pass on a JOIN and its answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as beyond:
        beyond.connect(there)
        data, worker = relay.recvfrom(1 << 16)
        beyond.send(data)
        relay.sendto(beyond.recv(1 << 16), worker)


def reduce_until_it_fails(rank, _size, pid):
    dist.all_reduce(torch.ones(3))
    if rank == 0:
        threading.Timer(0.5, os.kill, [pid, signal.SIGTERM]).start()

    def reduce():
        while True:
            dist.all_reduce(torch.ones(1000))

    return caught(reduce)


def test_every_rank_of_a_group_hears_of_it():
    with aggregators(1) as running:
        address = "{}:{}".format(*running[0].address)
        outcomes = run_processes(
            reduce_until_it_fails,
            3,
            running[0].process.pid,
            environment={
                "AFFLUX_AGGREGATOR": f"udp://{address}",
                "AFFLUX_PEER_TIMEOUT": str(PATIENCE_S),
                "AFFLUX_REQUIRE": "1",
            },
            timeout_s=2 * PATIENCE_S,
        )
        for outcome in outcomes:
            text, kind, seconds = outcome.value
            assert kind in ("AggregatorUnreachable", "GroupFailed"), text
            assert address in text
            assert "it is ending" in text or "has ended" in text
            assert seconds < SOON_S
