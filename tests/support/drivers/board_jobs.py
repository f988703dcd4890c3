"""Jobs on the registers of a board without a board: which there are, and tables of them."""

import time
from collections.abc import Callable

from afflux_drivers.aggregator.board import Board
from afflux_drivers.aggregator.job_journal import JobJournal
from afflux_drivers.aggregator.jobs import JobTable
from afflux_hdl.contract import registers
from tests.support.drivers.board_registers import BoardRegisters

__all__ = ["BOARD", "enabled", "table_of", "until"]

BOARD = 0x7F00_0002, 4700
"""Its address and port."""


def enabled(port: BoardRegisters) -> set[int]:
    """Return the numbers of the jobs that there are."""
    found = set()
    for number in range(4):
        port.write(registers.address_of("job_index"), number)
        if port.read(registers.address_of("job_enabled")):
            found.add(number)
    return found


def table_of(port: BoardRegisters, journal: JobJournal | None) -> JobTable:
    """Return another table of a board's jobs, as of another controller."""
    return JobTable(Board(port, "board", 500, apart=True), 1 << 20, journal=journal)


def until(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
