"""A worker's sockets against a socket of the test's that plays the aggregator."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AggregatorUnreachable, PacketTooLong
from afflux_drivers.sockets import enlarge
from afflux_drivers.worker.line import Line, UdpLoop
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from tests.support.drivers.virtual_job import ticket_of


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(2)
        yield peer


def ticket_at(peer: socket.socket) -> JobTicket:
    host, port = peer.getsockname()
    return replace(ticket_of(2, 16, 4), host=host, port=port)


def a_session() -> Session:
    return Session(ticket_of(2, 16, 4), 0)


def open_join(peer: socket.socket, loss: LossSwitch | None = None) -> tuple[Line, _native.Join]:
    ticket = ticket_at(peer)
    session = Session(ticket, 0)
    return Line(ticket.host, ticket.port, session, loss), _native.Join(session)


def test_counts_what_it_sends_and_receives(peer):
    line, join = open_join(peer)
    line.open(join)
    data, address = peer.recvfrom(100)
    assert len(data) == wire.datagram_bytes(0)
    for size in (3, 10_000):
        peer.sendto(bytes(size), address)
    UdpLoop([line]).run(time.monotonic() + 0.1)
    statistics = line.session.statistics
    assert (statistics.packets_sent, statistics.bytes_sent) == (1, 86)
    # One byte more than the longest packet: too long, and seen to be.
    longest = wire.datagram_bytes(wire.LANES_MAX) + wire.SEAL_BYTES + 1
    assert (statistics.packets_received, statistics.bytes_received) == (2, 3 + longest)
    assert statistics.ignored == 2
    assert statistics.frame_bytes_sent == 42 + 86
    line.close()
    line.close()


def test_loses_each_way_and_counts_it(peer):
    line, join = open_join(peer, LossSwitch(0.5, 1, 0))
    for _ in range(100):
        line.open(join)
    statistics = line.session.statistics
    sent = 100 - statistics.dropped_sent
    assert 25 < sent < 75
    address = None
    for _ in range(sent):
        _, address = peer.recvfrom(100)
    peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.recv(100)
    for _ in range(100):
        peer.sendto(b"y", address)
    UdpLoop([line]).run(time.monotonic() + 0.05)
    statistics = line.session.statistics
    assert statistics.packets_received == 100 - statistics.dropped_received
    assert 25 < statistics.packets_received < 75
    line.close()


def test_a_join_is_sent_again_until_it_is_answered(peer):
    line, join = open_join(peer)
    line.open(join)
    first, address = peer.recvfrom(100)
    UdpLoop([line]).run(time.monotonic() + 0.25)
    assert join.sends == 2
    assert peer.recv(100) == first
    ticket = line.session.ticket
    words = [ticket.workers, ticket.lanes, ticket.slots, ticket.credit, *[0] * 12]
    joined = bytes([wire.VERSION << 4 | wire.Type.JOINED]) + first[1:22]
    peer.sendto(joined + np.array(words, "<u4").tobytes(), address)
    start = time.monotonic()
    UdpLoop([line]).run(start + 5)
    assert join.done
    # Of 5 s that the loop might run.
    assert time.monotonic() - start < 4
    assert line.session.trip.smoothed_s == 0, "which of the two was answered?"
    line.close()


def test_notices_a_refused_port(peer):
    line, join = open_join(peer)
    peer.close()
    line.open(join)
    UdpLoop([line]).run(time.monotonic() + 0.1)
    assert line.refused
    line.close()


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none(port):
    with pytest.raises(AggregatorUnreachable, match=rf"cannot reach .*127.0.0.1:{port}.*65535"):
        Line("127.0.0.1", port, a_session(), None)


def test_no_route_to_the_aggregator():
    # A broadcast address, which the kernel refuses to a socket that has not asked for it.
    with pytest.raises(AggregatorUnreachable, match=r"cannot reach .* 255\.255\.255\.255:4700: "):
        Line("255.255.255.255", 4700, a_session(), None)


def test_a_packet_that_does_not_fit_the_mtu(peer, monkeypatch):
    monkeypatch.setattr(Line, "too_long", 4182)
    monkeypatch.setattr(Line, "mtu", 1500)
    ticket = ticket_at(peer)
    line = Line(ticket.host, ticket.port, a_session(), None)
    error = line.packet_too_long()
    assert isinstance(error, PacketTooLong)
    text = f"4182 bytes does not fit the MTU of 1500 bytes on the path to {line.peer}: at most 5 "
    assert text in str(error)
    assert "AFFLUX_LANES" in str(error)
    line.close()


def test_the_loopback_carries_the_longest_packet(peer):
    ticket = ticket_at(peer)
    session = Session(ticket, 0)
    line = Line(ticket.host, ticket.port, session, None)
    count = 64 * (wire.LANES_MAX - 1)
    elements = np.ones(count, np.int32)
    operation = Operation(session, elements, wire.Dtype.INT32, Reduction.SUM, (count,))
    line.open(operation)
    assert len(peer.recv(10_000)) == wire.datagram_bytes(wire.LANES_MAX)
    assert line.too_long == 0
    assert line.mtu >= 4210
    line.close()


def test_buffers_hold_what_credit_promises(peer):
    """Fills Linux's default buffer with as many packets as are said to fit: none is lost."""
    # The kernel doubles what is asked for.
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 106_496)
    size = peer.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    with ExitStack() as held_open:
        senders = [
            held_open.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(4)
        ]
        for sender in senders:
            sender.connect(peer.getsockname())
        for lanes in (0, 1, 2, 4, 5, 7, 13, 14, 16):
            length = wire.datagram_bytes(lanes)
            held = _native.usable_bytes(size) // _native.datagram_charge(length)
            assert held >= 16
            # Again, as packets that have been read may still be charged; and with some left unread.
            waiting = 0
            for leave in (0, 3, 1, 0):
                for number in range(held - waiting):
                    senders[number % 4].send(bytes(length))
                for _ in range(held - leave):
                    assert len(peer.recv(65536)) == length
                waiting = leave


class Mirror(threading.Thread):
    """Sends each DATA back as the RESULT that it is where a job has one worker, in bursts."""

    def __init__(self, packets: int) -> None:
        super().__init__()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        enlarge(self.socket, 8 << 20)
        self.socket.settimeout(0.2)
        self._burst = packets
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self.socket.close()

    def run(self) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                packets = [self.socket.recvfrom(9000)]
                time.sleep(0.001)
                self.socket.setblocking(False)
                with suppress(BlockingIOError):
                    while len(packets) < self._burst:
                        packets.append(self.socket.recvfrom(9000))
                self.socket.settimeout(0.2)
                for data, source in packets:
                    if data[0] == wire.VERSION << 4 | wire.Type.DATA:
                        result = bytes([wire.VERSION << 4 | wire.Type.RESULT]) + data[1:]
                        self.socket.sendto(result, source)


@pytest.mark.parametrize("lanes", [5, 16])
def test_no_more_is_asked_for_than_the_receive_buffer_holds(lanes, no_threads_left):
    """Of 256 results, sent while the worker sleeps, none is lost in Linux's default buffer."""
    slots = 256
    mirror = Mirror(slots)
    ticket = replace(ticket_of(1, lanes, slots), port=mirror.socket.getsockname()[1])
    session = Session(ticket, 0)
    # The kernel charges twice what is asked for: 212,992 bytes.
    line = Line("127.0.0.1", ticket.port, session, None, None, 106_496)
    assert 8 <= session.window < slots
    elements = np.ones(64 * lanes * slots * 3, np.int32)
    operation = Operation(session, elements, wire.Dtype.INT32, Reduction.SUM, elements.shape)
    mirror.start()
    loop = UdpLoop([line])
    line.open(operation)
    end = time.monotonic() + 20
    while not operation.done and time.monotonic() < end:
        # A moment in which nothing is read.
        time.sleep(0.002)
        loop.run(time.monotonic())
    mirror.stop()
    assert line.overflows == 0
    assert operation.done
    assert operation.result().tobytes() == elements.tobytes()
    line.close()
