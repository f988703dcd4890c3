"""An aggregator on a loopback socket, for the tests that need a real one."""

import threading
from collections.abc import Iterator

import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from tests.support.drivers.served import Served


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def served(no_threads_left: None) -> Iterator[Served]:
    running = Served(SoftEngine())
    try:
        yield running
    finally:
        running.stop()
