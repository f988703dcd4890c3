"""Has a simulator that writes waves end in order at SIGTERM and Ctrl-C, with a complete file.

By itself it would end at once, or by a segmentation fault, and with it what it has still to write.
"""

import ctypes
import os
import signal

from pygpi import entry

__all__ = ["start"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_VPI_FINISH = 67
"""As `$finish` (IEEE 1800-2023, annex K)."""


def start() -> None:
    """Start what the simulator starts with otherwise, with another end at these signals."""
    for number in _SIGNALS:
        signal.signal(number, _finish)
    del os.environ["PYGPI_USERS"]
    entry.load_entry()


def _finish(*_: object) -> None:
    # A second $finish would end it at once.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # cocotb's own way to stop forgets the signals first, which its clocks may still change.
    ctypes.CDLL(None).vpi_control(_VPI_FINISH, 0)
