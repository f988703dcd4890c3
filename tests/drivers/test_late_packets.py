"""Packets of a group that is no more come late: none gets into a sum of the group after it."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from afflux_drivers.aggregator import jobs
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import JobLease, create_job, read_counters
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError, AggregatorRefused
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.board_jobs import until
from tests.support.drivers.ranks import run_ranks
from tests.support.drivers.relay import Relay
from tests.support.drivers.served import Served

LANES, SLOTS, ELEMENTS, SUMS, SEED = 4, 4, 2000, 12, 32
LEASE_S = 1


def worker_through(relay: Relay, ticket: JobTicket, rank: int) -> Worker:
    return Worker([replace(ticket, host="127.0.0.1", port=relay.port)], rank, peer_timeout_s=5.0)


def all_reduce(workers: list[Worker], tensors: list[np.ndarray]) -> list[np.ndarray | AffluxError]:
    def function(rank):
        return lambda: workers[rank].all_reduce(
            tensors[rank], wire.Dtype.INT32, Reduction.SUM, (ELEMENTS,), 20.0
        )

    return run_ranks([function(rank) for rank in range(len(workers))])


def tensors_of(random: np.random.Generator, ranks: int) -> list[np.ndarray]:
    return [random.integers(-1000, 1000, ELEMENTS, np.int32) for _ in range(ranks)]


def created_when_there_is_room(served: Served) -> JobLease:
    deadline = time.monotonic() + 10
    while True:
        try:
            return create_job(served.address, 2, LANES, SLOTS, 5.0)
        except AggregatorRefused as refused:
            assert "all 1 jobs of this engine are in use" in str(refused)
            assert time.monotonic() < deadline
            time.sleep(0.05)


@contextmanager
def replaying(relays: list[Relay], packets: list[list[bytes]]) -> Iterator[list[int]]:
    """Send all packets again and again, each from where it came, in the order of the worker's."""
    stopping, counted = threading.Event(), [0]

    def run() -> None:
        while not stopping.is_set():
            for number in range(max(map(len, packets))):
                for relay, sent in zip(relays, packets, strict=True):
                    if number < len(sent):
                        relay.send_again(sent[number])
                        counted[0] += 1
            time.sleep(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield counted
    finally:
        stopping.set()
        thread.join()


def sums_after_a_death() -> tuple[int, int, int]:
    """Sum at three ranks, then at two, while all that the three sent is sent again.

    Returns:
        The packets of old, those sent again, and those that had a wrong key.

    Raises:
        AssertionError: A sum is wrong, or failed.
    """
    random = np.random.default_rng(SEED)
    # One job, so the next one has the slots of that before.
    served = Served(SoftEngine(jobs=1))
    relays = [Relay(served.address) for _ in range(3)]
    workers: list[Worker] = []
    before = create_job(served.address, 3, LANES, SLOTS, 5.0, lease_s=LEASE_S)
    after = None
    try:
        workers = [worker_through(relays[rank], before.ticket, rank) for rank in range(3)]
        for worker in workers:
            worker.join(5.0)
        for _ in range(3):
            tensors = tensors_of(random, 3)
            for found in all_reduce(workers, tensors):
                assert not isinstance(found, AffluxError), found
                assert np.array_equal(found, sum(tensors))
        packets = [list(relay.sent) for relay in relays]
        # Nobody closes the job, as when the host of the rank that holds it is gone.
        for worker in workers:
            worker.close()
        began = time.monotonic()
        after = created_when_there_is_room(served)
        assert time.monotonic() - began < LEASE_S + 3
        assert (after.ticket.job, after.ticket.slots) == (before.ticket.job, before.ticket.slots)
        workers = [worker_through(relays[rank], after.ticket, rank) for rank in range(2)]
        bad = read_counters(served.address, 5.0)["bad_key"]
        for worker in workers:
            worker.join(5.0)
        with replaying(relays, packets) as counted:
            until(lambda: counted[0] > 0)
            for _ in range(SUMS):
                tensors = tensors_of(random, 2)
                for found in all_reduce(workers, tensors):
                    assert not isinstance(found, AffluxError), found
                    assert np.array_equal(found, sum(tensors))
        return (
            sum(map(len, packets)),
            counted[0],
            read_counters(served.address, 5.0)["bad_key"] - bad,
        )
    finally:
        for worker in workers:
            worker.close()
        if after is not None:
            after.close()
        # Its job is no more.
        with suppress(AggregatorRefused):
            before.close()
        for relay in relays:
            relay.close()
        served.stop()


def test_no_packet_of_a_group_that_is_no_more_gets_into_a_sum():
    recorded, sent, refused = sums_after_a_death()
    assert sent > recorded
    # All that arrived; a socket's queue may have been full.
    assert sent / 2 < refused <= sent


def test_a_key_that_is_used_again_is_seen(monkeypatch):
    """So the check can fail: a job has number, key and round of the one before."""
    same = SimpleNamespace(randbits=lambda bits: SEED, compare_digest=secrets.compare_digest)
    monkeypatch.setattr(jobs, "secrets", same)
    with pytest.raises(AssertionError):
        sums_after_a_death()
