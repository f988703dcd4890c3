"""The UDP sockets of an aggregator's jobs that have a parent (protocol, section 5.6)."""

import contextlib
import select
import socket
import threading

from afflux_drivers.addresses import is_ipv6, resolve
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.frames import (
    FrameMaker,
    address_in_frames,
    datagram_of,
    destination_of,
    source_port_of,
)
from afflux_drivers.sockets import enlarge
from afflux_hdl.contract import wire

__all__ = ["ParentPorts", "PortTaken", "bound_parent_port"]

_BUFFER_BYTES = 4 << 20
_RECEIVE_BYTES = wire.LONGEST_DATAGRAM_BYTES + 1


class PortTaken(OSError):
    """A parent port is not free: a job of another number has another one.

    Args:
        port: The port.
        reason: The kernel's message.
    """

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(f"port {port}, on which the parent is to answer: {reason}")
        self.port = port
        self.reason = reason


def bound_parent_port(
    address: tuple[str, int], job: int, parent: ParentJob | None = None
) -> socket.socket:
    """Return a socket, non-blocking, on the port on which the parent of a job answers.

    Args:
        address: Address and UDP port of the aggregator.
        job: Number of the job.
        parent: The address that answers. An aggregator with an IPv6 address connects the socket to
            it, as the engine's registers have no room for such an address.

    Raises:
        PortTaken: It is not free.
        OSError: There can be no more sockets, or it cannot lead to the parent.
    """
    host, own = address
    port = (own + 1 + job) & 0xFFFF
    if port == 0:
        # To the kernel it means any.
        raise PortTaken(port, "there is no such port")
    ((family, where), *_) = resolve(host, port)
    udp = socket.socket(family, socket.SOCK_DGRAM)
    try:
        enlarge(udp, _BUFFER_BYTES)
        udp.setblocking(False)
        if family == socket.AF_INET6:
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        udp.bind(where)
    except OSError as error:
        udp.close()
        raise PortTaken(port, error.strerror or str(error)) from None
    try:
        if parent is not None:
            _lead(udp, host, parent)
    except BaseException:
        udp.close()
        raise
    return udp


def _lead(udp: socket.socket, own: str, parent: ParentJob) -> None:
    """Connect a socket of IPv6 to the parent; check that one of IPv4 can reach it."""
    if udp.family != socket.AF_INET6:
        if is_ipv6(parent.address):
            raise OSError(f"{own}, where this aggregator listens, is an address of IPv4")
        return
    if not is_ipv6(parent.address) and own != "::":
        raise OSError(f"{own}, where this aggregator listens, is an address of IPv6")
    mapped = parent.address if is_ipv6(parent.address) else f"::ffff:{parent.address}"
    udp.connect(resolve(mapped, parent.port)[0].where)
    # Earlier datagrams may be from anyone; from now on the kernel lets only the parent's pass.
    with contextlib.suppress(BlockingIOError, ConnectionError):
        for _ in range(_BUFFER_BYTES):
            udp.recv(1)


class ParentPorts:
    """One socket for each job with a parent, on the port that the protocol gives it. Thread-safe.

    Args:
        address: The aggregator's IPv4 address.
        port: Its UDP port.
        watch: Every socket is registered here, so that waiting on it ends when a packet comes.
    """

    def __init__(self, address: str, port: int, watch: select.epoll) -> None:
        self._address, self._port, self._watch = address, port, watch
        self._number = address_in_frames(address)
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
        datagram = datagram_of(frame)
        if datagram is None:
            return
        with self._lock:
            found = self._sockets.get(source_port_of(frame))
            if found is not None:
                try:
                    found[0].sendto(datagram, destination_of(frame))
                except OSError:
                    return
