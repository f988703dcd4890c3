"""A worker whose address changes while its job runs, as behind a translation that forgets it."""

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, read_counters
from afflux_drivers.errors import AggregatorUnreachable
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.served import Served

LONGEST = 1 << 16
GLANCE_S = 0.02


class Relay:
    """Passes one worker's datagrams on from a port of its own, which `move` changes.

    Attributes:
        port: Where the worker finds it.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._inside.bind(("127.0.0.1", 0))
        self.port = self._inside.getsockname()[1]
        self._outside = self._connected()
        self._in_use: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def move(self) -> None:
        """Send from another port from now on; packets to the old one are lost."""
        self._outside = self._connected()
        # The thread may still be waiting with the old one.
        while self._in_use is not self._outside:
            time.sleep(GLANCE_S / 4)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._inside.close()

    def _connected(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.connect(self._target)
        return made

    def _run(self) -> None:
        worker = None
        while not self._stopping.is_set():
            self._in_use = outside = self._outside
            with selectors.DefaultSelector() as selector:
                for each in (self._inside, outside):
                    selector.register(each, selectors.EVENT_READ)
                for key, _ in selector.select(GLANCE_S):
                    if key.fileobj is self._inside:
                        data, worker = self._inside.recvfrom(LONGEST)
                        outside.send(data)
                    elif worker is not None:
                        self._inside.sendto(outside.recv(LONGEST), worker)
        self._outside.close()


@contextmanager
def moving(may_move: bool) -> Iterator[tuple[Served, Relay, Worker]]:
    served = Served(SoftEngine(), may_move=may_move)
    relay = Relay(served.address)
    try:
        lease = create_job(served.address, 1, 4, 4, 5.0)
        ticket = replace(lease.ticket, host="127.0.0.1", port=relay.port)
        worker = Worker([ticket], 0, peer_timeout_s=1.0)
        try:
            worker.join(5.0)
            yield served, relay, worker
        finally:
            worker.close()
            lease.close()
    finally:
        relay.close()
        served.stop()


def reduce_some(worker: Worker) -> None:
    elements = np.arange(300, dtype=np.int32)
    result = worker.all_reduce(elements, wire.Dtype.INT32, Reduction.SUM, (300,), 20.0)
    assert (result == elements).all()


def test_before_its_first_contribution_a_worker_may_move():
    with moving(may_move=False) as (_, relay, worker):
        relay.move()
        reduce_some(worker)


def test_where_workers_may_move_it_joins_again():
    with moving(may_move=True) as (_, relay, worker):
        reduce_some(worker)
        relay.move()
        reduce_some(worker)


def test_a_worker_of_a_running_job_may_not_move():
    """And its error says why nothing comes."""
    with moving(may_move=False) as (served, relay, worker):
        reduce_some(worker)
        relay.move()
        with pytest.raises(
            AggregatorUnreachable,
            match=r"does not answer since .* s but by a refusal \(the job is running, and this "
            r"worker has joined from another address\)",
        ):
            reduce_some(worker)
        assert read_counters(served.address, 5.0)["bad_address"] > 1
