"""The server of the software engine's sockets, when the kernel refuses what it asks for."""

import os
import tempfile

import pytest

from afflux_drivers import _native
from afflux_drivers.aggregator.engine import SoftEngine

_TIMES = 100


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_a_server_that_cannot_be_made_leaves_no_open_files():
    """The kernel watches no ordinary files: by then the thread has opened three of its own."""
    engine = SoftEngine()
    with tempfile.TemporaryFile() as unwatchable:
        before = open_files()
        for _ in range(_TIMES):
            with pytest.raises((OSError, RuntimeError), match="not watched"):
                _native.SocketServer(engine, [unwatchable.fileno()])
        assert open_files() - before < _TIMES
