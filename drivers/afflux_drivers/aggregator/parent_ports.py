"""The UDP sockets of an aggregator's jobs that have a parent (protocol, section 5.6)."""

import select
import socket
import threading

from afflux_drivers.frames import FrameMaker, destination_of, source_port_of
from afflux_drivers.sockets import enlarge
from afflux_hdl.contract import wire

__all__ = ["ParentPorts", "PortTaken", "bound_parent_port", "lanes_towards"]

# Linux's number; the socket module has no name for it before Python 3.14.
_IP_MTU = 14

_BUFFER_BYTES = 4 << 20
_RECEIVE_BYTES = wire.datagram_bytes(wire.LANES_MAX) + 1


class PortTaken(OSError):
    """A parent port is not free: a job of another number has another one.

    Args:
        port: The port.
        reason: What the kernel says.
    """

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(f"port {port}, on which the parent is to answer: {reason}")
        self.port = port
        self.reason = reason


def lanes_towards(address: str, port: int) -> int:
    """Return for how many lanes the route to a parent carries packets unfragmented.

    Raises:
        OSError: If there is no route.
        ValueError: If not even a packet of one block fits.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: the kernel only chooses the route.
        probe.connect((address, port))
        return wire.lanes_for_mtu(probe.getsockopt(socket.IPPROTO_IP, _IP_MTU))


def bound_parent_port(address: tuple[str, int], job: int) -> socket.socket:
    """Return a socket, non-blocking, on the port on which the parent of a job answers.

    Args:
        address: IPv4 address and UDP port of the aggregator.
        job: Number of the job.

    Raises:
        PortTaken: It is not free.
        OSError: There can be no more sockets.
    """
    host, own = address
    port = (own + 1 + job) & 0xFFFF
    if port == 0:
        # To the kernel it means any.
        raise PortTaken(port, "there is no such port")
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        enlarge(udp, _BUFFER_BYTES)
        udp.setblocking(False)
        udp.bind((host, port))
    except OSError as error:
        udp.close()
        raise PortTaken(port, error.strerror or str(error)) from None
    return udp


class ParentPorts:
    """One socket for each job with a parent, on the port that the protocol gives it. Thread-safe.

    Args:
        address: The aggregator's IPv4 address.
        port: Its UDP port.
        watch: Every socket is registered here, so that waiting on it ends when a packet comes.
    """

    def __init__(self, address: str, port: int, watch: select.epoll) -> None:
        self._address, self._port, self._watch = address, port, watch
        self._number = int.from_bytes(socket.inet_aton(address), "big")
        # Held while sockets are used, as a closed one's file number may be another's at once.
        self._lock = threading.Lock()
        self._sockets: dict[int, tuple[socket.socket, FrameMaker]] = {}

    def open(self, job: int) -> None:
        """Open the parent port of a job.

        Raises:
            PortTaken: It is not free.
        """
        udp = bound_parent_port((self._address, self._port), job)
        port = udp.getsockname()[1]
        with self._lock:
            self._watch.register(udp, select.EPOLLIN)
            self._sockets[port] = udp, FrameMaker(self._number, port)

    def close(self, job: int) -> None:
        """Close the parent port of a job, if it is open."""
        with self._lock:
            found = self._sockets.pop((self._port + 1 + job) & 0xFFFF, None)
            if found is not None:
                found[0].close()

    def close_all(self) -> None:
        """Close all parent ports."""
        with self._lock:
            for udp, _ in self._sockets.values():
                udp.close()
            self._sockets.clear()

    def receive(self, most: int) -> list[bytes]:
        """Return the frames that have come, up to so many from each port, without waiting."""
        frames: list[bytes] = []
        if not self._sockets:
            return frames
        with self._lock:
            for udp, maker in self._sockets.values():
                for _ in range(most):
                    try:
                        payload, (host, port) = udp.recvfrom(_RECEIVE_BYTES)
                    except OSError:
                        break
                    frames.append(maker.frame(payload, host, port))
        return frames

    def send(self, frame: bytes) -> None:
        """Send an engine's frame from the port that it names; errors lose it, as networks do."""
        with self._lock:
            found = self._sockets.get(source_port_of(frame))
            if found is not None:
                try:
                    found[0].sendto(memoryview(frame)[wire.AFFLUX_OFFSET :], destination_of(frame))
                except OSError:
                    return
