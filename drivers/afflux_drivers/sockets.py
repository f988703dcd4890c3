"""Options of sockets: kernel buffers, multicast groups (protocol, section 5.5), TCP."""

import ipaddress
import socket
from dataclasses import dataclass

__all__ = ["MulticastGroup", "enlarge", "send_to_groups", "set_up_tcp"]

# Linux's numbers, missing from the socket module. They exceed the system's limit, if privileged.
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32


def enlarge(udp: socket.socket, size: int) -> int:
    """Ask for `size` bytes of receive and send buffer; the kernel may give less.

    Returns: Bytes that the receive buffer may charge in all: Linux doubles the size that it grants,
        to allow for its own structures.
    """
    for force, plain in (
        (_SO_RCVBUFFORCE, socket.SO_RCVBUF),
        (_SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        try:
            udp.setsockopt(socket.SOL_SOCKET, force, size)
        except OSError:
            udp.setsockopt(socket.SOL_SOCKET, plain, size)
    return udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


_ANY = "0.0.0.0"


@dataclass(frozen=True)
class MulticastGroup:
    """Where the results of a job go, once for all its workers.

    Attributes:
        address: IPv4 multicast address.
        port: UDP port.

    Raises:
        ValueError: If they cannot be that.
    """

    address: str
    port: int

    def __post_init__(self) -> None:
        try:
            multicast = ipaddress.IPv4Address(self.address).is_multicast
        except ValueError:
            multicast = False
        if not multicast:
            raise ValueError(
                f"{self.address!r} is not an IPv4 multicast address, such as 239.1.2.3"
            )
        if not 0 < self.port < 1 << 16:
            raise ValueError(f"the port of a multicast group must be 1 to 65535, not {self.port}")

    @classmethod
    def parse(cls, text: str) -> "MulticastGroup":
        """Return the group of a text such as 239.1.2.3:4701.

        Raises:
            ValueError: If the text names none.
        """
        address, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()):
            raise ValueError(f"{text!r} is not an address:port of a multicast group")
        return cls(address, int(port))

    @property
    def words(self) -> tuple[int, int]:
        """Address, first octet uppermost, and port, as registers and JOINED have them."""
        return int(ipaddress.IPv4Address(self.address)), self.port

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


def send_to_groups(udp: socket.socket, interface: str, ttl: int) -> None:
    """Set how multicast datagrams leave a socket.

    Args:
        udp: The socket.
        interface: Own address on the network that they go to; 0.0.0.0 leaves it to the routes.
        ttl: Routers that one may pass, plus one.

    Raises:
        OSError: If there is no such interface, or ttl is not 0 to 255.
    """
    if interface != _ANY:
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
    # Ranks of this host are among the receivers.
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)


def set_up_tcp(tcp: socket.socket) -> None:
    """Make a connection non-blocking, and have nothing that is sent wait for more.

    It ends 25 s after its peer's host has vanished, if nothing is sent meanwhile.
    """
    tcp.setblocking(False)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 10),
        (socket.TCP_KEEPINTVL, 5),
        (socket.TCP_KEEPCNT, 3),
    ):
        tcp.setsockopt(socket.IPPROTO_TCP, option, value)
