"""An aggregator on a loopback socket, and a journal, for the tests that need real ones."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.job_journal import JobJournal
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


@pytest.fixture
def journal(tmp_path: Path) -> JobJournal:
    return JobJournal(tmp_path / "state" / "board.json")
