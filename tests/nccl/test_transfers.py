"""Point-to-point transfers through Net's tables: NCCL takes CollNet only together with them."""

import ctypes
import os
import resource
import time
from typing import Any

import numpy as np
import pytest

from tests.support.nccl.node import Buffer, Node, run_nodes
from tests.support.nccl.tables import HANDLE_BYTES, VERSIONS

SIZES = (0, 1, 100, 4096, 65_536, 131_072, 131_073, 300_001)
ROOM = 1 << 19


class Transfers:
    """The calls of one node's proxy, which differ a little between versions."""

    def __init__(self, node: Node) -> None:
        self.net, self.version = node.plugin.net, node.version
        self.context = (ctypes.c_void_p(),) if node.version >= 11 else ()
        self.profiled: tuple[Any, ...] = (None,) if node.version >= 10 else ()

    def listen(self) -> tuple[bytes, int]:
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        out = ctypes.c_void_p()
        args = *self.context, 0, ctypes.addressof(handle), ctypes.byref(out)
        assert self.net("listen", *args) == 0
        assert out.value is not None
        return handle.raw, out.value

    def connect(self, handle: bytes) -> int:
        # The plugin keeps its state in the handle, from call to call.
        kept = ctypes.create_string_buffer(handle, HANDLE_BYTES)
        config = (None,) if self.version == 10 else ()
        return self._until("connect", *self.context, 0, *config, ctypes.addressof(kept))

    def accept(self, listening: int) -> int:
        return self._until("accept", listening)

    def _until(self, name: str, *arguments: Any) -> int:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            out, device = ctypes.c_void_p(), ctypes.c_void_p()
            assert self.net(name, *arguments, ctypes.byref(out), ctypes.byref(device)) == 0
            if out.value is not None:
                return out.value
        raise AssertionError(f"{name} takes too long")

    def send(self, comm: int, buffer: Buffer, size: int) -> int | None:
        out = ctypes.c_void_p()
        args = comm, buffer.address, size, 0, None, *self.profiled, ctypes.byref(out)
        assert self.net("isend", *args) == 0
        return out.value

    def receive(self, comm: int, buffer: Buffer) -> int | None:
        size = (ctypes.c_int if self.version == 8 else ctypes.c_size_t)(buffer.size)
        data, handle = ctypes.c_void_p(buffer.address), ctypes.c_void_p()
        tag, out = ctypes.c_int(0), ctypes.c_void_p()
        lists = ctypes.byref(data), ctypes.byref(size), ctypes.byref(tag), ctypes.byref(handle)
        assert self.net("irecv", comm, 1, *lists, *self.profiled, ctypes.byref(out)) == 0
        return out.value

    def wait(self, request: int | None) -> int:
        assert request is not None
        done, size = ctypes.c_int(0), ctypes.c_int(-1)
        until = time.monotonic() + 20
        while not done.value:
            assert self.net("test", request, ctypes.byref(done), ctypes.byref(size)) == 0
            assert time.monotonic() < until
        return size.value


def message(rank: int, number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng((rank, number)).integers(0, 256, SIZES[number], np.uint8)


def to_the_next(node: Node) -> list[int]:
    """Send messages to the next node of a ring, and receive those of the one before."""
    node.init()
    node.properties()
    transfers = Transfers(node)
    handle, listening = transfers.listen()
    handles = node.gather(handle)
    sending = transfers.connect(handles[(node.rank + 1) % node.size])
    receiving = transfers.accept(listening)
    assert transfers.net("closeListen", listening) == 0
    before = (node.rank - 1) % node.size
    outward = [Buffer(ROOM) for _ in SIZES]
    requests = []
    for number, buffer in enumerate(outward):
        buffer.bytes[: SIZES[number]] = message(node.rank, number)
        requests.append(transfers.send(sending, buffer, SIZES[number]))
    sizes = []
    inward = Buffer(ROOM)
    for number in range(len(SIZES)):
        size = transfers.wait(transfers.receive(receiving, inward))
        assert (inward.bytes[:size] == message(before, number)).all()
        sizes.append(size)
    for request in requests:
        transfers.wait(request)
    node.gather(None)
    assert transfers.net("closeSend", sending) == 0
    assert transfers.net("closeRecv", receiving) == 0
    return sizes


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_all_sizes_arrive_in_order(version):
    # Without an aggregator, too: then NCCL has these transfers alone.
    found = run_nodes(to_the_next, 2, environment={}, version=version)
    assert found == [list(SIZES)] * 2


Event = tuple[Any, ...]
Profiler = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
)


class SocketEvent(ctypes.Structure):
    """NCCL's ncclProfilerNetSockDescr_v1_t: its socket is a struct in a union."""

    class Socket(ctypes.Structure):
        _fields_ = (("fd", ctypes.c_int), ("op", ctypes.c_int), ("length", ctypes.c_size_t))

    _fields_ = (("type", ctypes.c_uint8), ("sock", Socket))


def to_itself(node: Node) -> tuple[Transfers, int, int]:
    transfers = Transfers(node)
    handle, listening = transfers.listen()
    sending, receiving = transfers.connect(handle), transfers.accept(listening)
    assert transfers.net("closeListen", listening) == 0
    return transfers, sending, receiving


def with_a_profiler(node: Node, wanted: bool) -> tuple[list[Event], list[Event]]:
    """Send two messages to oneself; return the events of both ends, in their order."""
    events: list[Event] = []

    def take(event: Any, kind: int, parent: int, plugin: int, data: int) -> int:
        if kind == 0:
            said = SocketEvent.from_address(data)
            assert os.fstat(said.sock.fd)
            number = len(events) + 1
            # A profiler that does not want an event leaves it null.
            event[0] = number if wanted else None
            events.append(
                ("start", number, parent, plugin, said.type, said.sock.op, said.sock.length)
            )
        else:
            events.append(("stop", event[0]))
        return 0

    callback = Profiler(take)
    node.profiler = ctypes.cast(callback, ctypes.c_void_p)
    node.init()
    transfers, sending, receiving = to_itself(node)
    buffer = Buffer(ROOM)
    parent = ctypes.c_void_p(77)
    for size in (100, 300_000):
        transfers.profiled = (parent,)
        request = transfers.send(sending, buffer, size)
        transfers.profiled = (ctypes.byref(ctypes.c_void_p(78)),)
        assert transfers.wait(transfers.receive(receiving, buffer)) == size
        transfers.wait(request)
    # Without a parent there is no event.
    transfers.profiled = (None,)
    request = transfers.send(sending, buffer, 100)
    transfers.wait(transfers.receive(receiving, buffer))
    transfers.wait(request)
    ends = [event for event in events if event[0] == "stop"]
    return [event for event in events if event[0] == "start"], ends


@pytest.mark.parametrize("version", [10, 12])
def test_the_profiler_hears_of_transfers_as_of_nccls_own_sockets(version):
    ((starts, ends),) = run_nodes(with_a_profiler, 1, True, environment={}, version=version)
    # NCCL_PROFILER_NET_TYPE_SOCK of version 1: what passes where, and how many bytes.
    kinds = [(parent, plugin, *rest) for _, _, parent, plugin, *rest in starts]
    assert kinds == [
        (parent, 2 << 16 | 1, 1, op, size)
        for size in (100, 300_000)
        for parent, op in ((77, 0), (78, 1))
    ]
    assert sorted(number for _, number in ends) == [number for _, number, *_ in starts]


def test_a_profiler_that_wants_no_events_hears_of_no_end():
    ((starts, ends),) = run_nodes(with_a_profiler, 1, False, environment={})
    assert len(starts) == 4 and not ends


def many_connections(node: Node, room: int) -> tuple[list[int], str]:
    """Connect to oneself until there are no files; return the sockets of each connection."""
    node.init()
    opened = len(os.listdir("/proc/self/fd"))
    # A quarter of all files is open after the first connections.
    limit = 4 * (opened + room)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    found: list[int] = []
    while True:
        try:
            to_itself(node)
        except AssertionError:
            return found, node.warnings()[-1]
        try:
            now = len(os.listdir("/proc/self/fd"))
        except OSError:
            continue
        found.append(now - opened)
        opened = now


def test_with_many_files_open_connections_have_fewer_streams():
    ((found, text),) = run_nodes(many_connections, 1, 10, environment={})
    assert found[0] == 8 and found == sorted(found, reverse=True) and {*found} == {8, 4, 2}
    assert "files open that it may have" in text and "ulimit -n" in text
    environment = {"AFFLUX_NCCL_STREAMS": "1"}
    ((found, _),) = run_nodes(many_connections, 1, 10, environment=environment)
    assert {*found} == {2}


def without_collectives(node: Node) -> tuple[int, list[str]]:
    return node.init(), [text for _, text in node.log]


def test_without_an_aggregator_there_are_no_collectives():
    ((devices, log),) = run_nodes(without_collectives, 1, environment={})
    assert devices == 0
    assert any("AFFLUX_AGGREGATOR is not set" in text for text in log)


def wrong_device(node: Node) -> list[int]:
    node.init()
    handle = ctypes.create_string_buffer(HANDLE_BYTES)
    context = (ctypes.c_void_p(),)
    out = ctypes.c_void_p()
    args = *context, 7, ctypes.addressof(handle), ctypes.byref(out)
    found = [node.plugin.net("listen", *args), node.plugin.collnet("listen", *args)]
    assert len(node.warnings()) == 2
    return found


def test_a_device_that_there_is_not_is_an_error():
    environment = {"AFFLUX_AGGREGATOR": "udp://127.0.0.1:9"}
    (found,) = run_nodes(wrong_device, 1, environment=environment)
    assert all(found)


def foreign_handle(node: Node) -> str:
    node.init()
    transfers = Transfers(node)
    kept = ctypes.create_string_buffer(HANDLE_BYTES)
    out, device = ctypes.c_void_p(), ctypes.c_void_p()
    args = *transfers.context, 0, ctypes.addressof(kept), ctypes.byref(out), ctypes.byref(device)
    assert transfers.net("connect", *args) != 0
    return node.warnings()[-1]


def test_a_handle_of_another_plugin_is_refused():
    (text,) = run_nodes(foreign_handle, 1, environment={})
    assert "the handle is not Afflux's" in text
