"""Others that connect where a communicator's nodes meet: they hold nobody up, and get nothing."""

import contextlib
import ctypes
import os
import socket
import struct
import time

import numpy as np

from tests.support.host import serving
from tests.support.host.aggregators import aggregator
from tests.support.nccl.node import Buffer, Node, run_nodes
from tests.support.nccl.tables import HANDLE_BYTES

SILENT = 100
"""As many as wait in a listener's queue, with room for the nodes."""


def port_of(handle: bytes) -> int:
    """Return the TCP port that a handle names: it has a magic, a secret, and a socket address."""
    (port,) = struct.unpack_from(">H", handle, 8 + 16 + 2)
    return int(port)


def besieged(node: Node) -> float:
    node.init()
    handle, listening = node.listen()
    handles = node.gather(handle)
    with contextlib.ExitStack() as open_sockets:
        if node.rank == 0:
            for number in range(SILENT):
                stranger = socket.create_connection(("127.0.0.1", port_of(handle)))
                open_sockets.enter_context(stranger)
                lines = (b"", b"GET / HTTP/1.1\r\n\r\n", b'{"nonce": "' + b"0" * 32 + b'"}\nx y\n')
                with contextlib.suppress(OSError):
                    stranger.sendall(lines[number % 3])
        comm = node.connect(handles, listening)
    buffers = Buffer(1 << 14), Buffer(1 << 14)
    found = comm.all_reduce(np.ones(2000, np.float32), "float32", "sum", buffers)
    comm.close()
    return float(found[-1])


def test_strangers_hold_nobody_up():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "5"}
        assert run_nodes(besieged, 3, environment=environment, limit_s=30) == [3.0] * 3


def crowded(node: Node) -> tuple[int, bool]:
    """Let hundreds of strangers come to a listener of the Net part, and then its peer."""
    node.init()
    net, context = node.plugin.net, ctypes.c_void_p()
    handle = ctypes.create_string_buffer(HANDLE_BYTES)
    listening = ctypes.c_void_p()
    at = ctypes.addressof(handle)
    assert net("listen", context, 0, at, ctypes.byref(listening)) == 0
    sending, receiving, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    with contextlib.ExitStack() as open_sockets:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(4 * SILENT):
            stranger = socket.create_connection(
                ("127.0.0.1", port_of(handle.raw)), source_address=("127.0.0.2", 0)
            )
            open_sockets.enter_context(stranger)
            net("accept", listening, ctypes.byref(receiving), ctypes.byref(device))
        held = len(os.listdir("/proc/self/fd")) - before - 4 * SILENT
        until = time.monotonic() + 3
        while (sending.value is None or receiving.value is None) and time.monotonic() < until:
            if sending.value is None:
                net("connect", context, 0, at, ctypes.byref(sending), ctypes.byref(device))
            if receiving.value is None:
                net("accept", listening, ctypes.byref(receiving), ctypes.byref(device))
    return held, None not in (sending.value, receiving.value)


def test_strangers_of_transfers_are_limited_and_drive_nobody_out():
    environment = {"AFFLUX_INTERFACE": "lo"}
    ((held, connected),) = run_nodes(crowded, 1, environment=environment)
    assert connected and held <= 128


def named(node: Node) -> tuple[str, float]:
    node.init()
    comm = node.form()
    buffers = Buffer(1 << 14), Buffer(1 << 14)
    found = comm.all_reduce(np.ones(2000, np.float32), "float32", "sum", buffers)
    comm.close()
    return node.log[0][1], float(found[-1])


def test_over_ipv6():
    process, line = serving.start("--host", "::1", "--port", "0")
    url = next(word for word in line.split() if word.startswith("udp://")).rstrip(",.;")
    try:
        found = run_nodes(named, 2, environment={"AFFLUX_AGGREGATOR": url})
        by_address = {"AFFLUX_AGGREGATOR": url, "AFFLUX_INTERFACE": "::1/128"}
        found += run_nodes(named, 2, environment=by_address)
    finally:
        process.terminate()
        serving.finish(process)
    assert found == [("using lo ::1", 2.0)] * 4
