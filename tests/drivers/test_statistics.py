"""A worker's counts, while other threads ask for them."""

import sys
import threading

import numpy as np
import pytest

from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, read_counters
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

_OPERATIONS = 40
_ELEMENTS = 200_000


@pytest.fixture
def threads_take_short_turns():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_take_short_turns")
def test_nothing_is_lost_that_others_read(served):
    """A reader takes nothing away, and sees counts that only grow."""
    lease = create_job(served.address, 1, 16, 8, 5.0)
    worker = Worker([lease.ticket], 0)
    seen: list[list[int]] = [[], []]
    over = threading.Event()

    def ask(found: list[int]) -> None:
        while not over.is_set():
            found.append(worker.statistics.rounds)

    asking = [threading.Thread(target=ask, args=(found,)) for found in seen]
    try:
        worker.join(5.0)
        for each in asking:
            each.start()
        for _ in range(_OPERATIONS):
            elements = np.ones(_ELEMENTS, np.float32)
            worker.all_reduce(elements, wire.Dtype.FLOAT32, Reduction.SUM, (_ELEMENTS,), 30.0)
    finally:
        over.set()
        for each in asking:
            if each.ident is not None:
                each.join()
        worker.close()
    rounds = read_counters(served.address, 5.0)["rounds"]
    lease.close()
    assert worker.statistics.rounds == rounds > _OPERATIONS
    assert worker.statistics.operations == _OPERATIONS
    assert all(found == sorted(found) for found in seen)
