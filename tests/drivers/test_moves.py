"""A worker whose address changes while its job runs, as behind a translation that forgets it."""

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
from tests.support.drivers.relay import Relay
from tests.support.drivers.served import Served


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
