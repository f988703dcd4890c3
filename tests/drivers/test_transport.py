import socket
from collections.abc import Iterator

import pytest

from afflux_drivers.errors import PacketTooLong
from afflux_drivers.packets import PacketBuffer, datagram_bytes
from afflux_drivers.sockets import datagrams_held, enlarge
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.statistics import WorkerStatistics
from afflux_drivers.worker.transport import UdpTransport


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(2)
        yield peer


def test_counts_what_it_sends_and_receives(peer):
    statistics = WorkerStatistics()
    host, port = peer.getsockname()
    transport = UdpTransport(host, port, statistics, None)
    packet = PacketBuffer()
    assert transport.receive(packet) == -1
    transport.send(b"abcde")
    data, address = peer.recvfrom(100)
    assert data == b"abcde"
    peer.sendto(b"xyz", address)
    transport.wait(2)
    assert transport.receive(packet) == 3
    assert bytes(packet.datagram[:3]) == b"xyz"
    peer.sendto(bytes(10_000), address)
    transport.wait(2)
    assert transport.receive(packet) == datagram_bytes(16) + 1, "too long, and seen to be"
    assert (statistics.packets_sent, statistics.bytes_sent) == (1, 5)
    assert statistics.packets_received == 2
    assert statistics.frame_bytes_sent == 47
    transport.close()
    transport.close()


def test_loses_each_way_and_counts_it(peer):
    statistics = WorkerStatistics()
    host, port = peer.getsockname()
    transport = UdpTransport(host, port, statistics, LossSwitch(0.5, 1, 0))
    for _ in range(100):
        transport.send(b"x")
    address = None
    peer.settimeout(0.1)
    received = 0
    try:
        while True:
            _, address = peer.recvfrom(1)
            received += 1
    except TimeoutError:
        pass
    assert received == statistics.packets_sent == 100 - statistics.dropped_sent
    assert 25 < received < 75
    for _ in range(100):
        peer.sendto(b"y", address)
    packet = PacketBuffer()
    taken = 0
    while transport.receive(packet) > 0:
        taken += 1
    assert taken == statistics.packets_received == 100 - statistics.dropped_received
    assert 25 < taken < 75
    transport.close()


def test_notices_a_refused_port(peer):
    host, port = peer.getsockname()
    peer.close()
    transport = UdpTransport(host, port, WorkerStatistics(), None)
    packet = PacketBuffer()
    transport.send(b"x")
    transport.wait(1)
    assert transport.receive(packet) == -1
    assert transport.refused
    transport.close()


def test_a_packet_that_does_not_fit_the_mtu(peer):
    host, port = peer.getsockname()
    transport = UdpTransport(host, port, WorkerStatistics(), None)
    with pytest.raises(PacketTooLong, match=r"70000 bytes does not fit the MTU of \d+.*16 lanes"):
        transport.send(bytes(70_000))
    transport.close()


def test_buffers_hold_what_credit_promises(peer):
    """Fills a receive buffer with as many packets as are said to fit: none is lost."""
    size = enlarge(peer, 1 << 20)
    assert size >= 1 << 20
    for lanes in (1, 5, 16):
        length = datagram_bytes(lanes)
        held = datagrams_held(size, length)
        assert held > 50
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(peer.getsockname())
            for _ in range(held):
                sender.send(bytes(length))
        for _ in range(held):
            assert len(peer.recv(65536)) == length
