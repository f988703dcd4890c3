"""An aggregator on a loopback socket, for the tests that need a real one."""

import threading
from collections.abc import Iterator

import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.sockets import MulticastGroup


class Served:
    """A server that runs in a thread of the test's process."""

    def __init__(self, engine: SoftEngine, group: MulticastGroup | None = None) -> None:
        self.server = AggregatorServer(engine, group=group)
        self.address = self.server.address
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()


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
