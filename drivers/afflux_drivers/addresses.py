"""IP addresses of both families: how they are written, what names stand for, what a route carries.

An address is a text: 10.0.0.1, fd00::1, or fe80::1%eth0 with the interface that leads to it. Beside
a port an IPv6 address stands in brackets.
"""

import ipaddress
import socket
import time
from typing import Any, NamedTuple

from afflux_hdl.contract import wire

__all__ = [
    "Place",
    "Route",
    "authority",
    "connect_tcp",
    "is_ipv6",
    "is_loopback",
    "lanes_for_mtu",
    "named",
    "never_fragment",
    "peer_name",
    "resolve",
    "route_to",
    "same_address",
]

_IPV6_HEADER_BYTES = 40
_LONGER_HEADER_BYTES = _IPV6_HEADER_BYTES - wire.IPV4_BYTES

# Linux's numbers, missing from the socket module.
_IP_MTU_DISCOVER, _IP_MTU = 10, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24
_PMTUDISC_DO = 2

_IPV6_BITS = 64

_PACKET_MAX = 65535
"""The loopback interface has more, but the length field of a packet ends there."""


class Place(NamedTuple):
    """The addresses of a name and a port.

    Attributes:
        family: Of `socket`.
        where: For calls of a socket of this family.
    """

    family: int
    where: tuple[Any, ...]

    @property
    def host(self) -> str:
        """The address as a text."""
        return named(self.where)[0]


class Route(NamedTuple):
    """The way to a host, as far as this host knows it.

    Attributes:
        own: Own address on it.
        mtu: Bytes of the longest IP packet.
    """

    own: str
    mtu: int

    @property
    def lanes(self) -> int:
        """Lanes whose packets it carries unfragmented. Raises `ValueError` if not even one fits."""
        return lanes_for_mtu(self.mtu, self.own)


def is_ipv6(address: str) -> bool:
    """Return whether an address is one of IPv6."""
    return ":" in address


def named(where: tuple[Any, ...]) -> tuple[str, int]:
    """Return address and port of what calls of a socket return, which has the interface apart."""
    host, port = where[:2]
    zone = where[3] if len(where) == 4 else 0
    if zone == 0 or "%" in host:
        return host, port
    try:
        return f"{host}%{socket.if_indextoname(zone)}", port
    except OSError:
        # The interface has gone.
        return f"{host}%{zone}", port


def is_loopback(address: str) -> bool:
    """Return whether other hosts cannot reach this address."""
    number = ipaddress.ip_address(address)
    return (getattr(number, "ipv4_mapped", None) or number).is_loopback


def same_address(one: str, other: str) -> bool:
    """Return whether two texts are the same address, without regard to interfaces."""
    try:
        numbers = [ipaddress.ip_address(each.partition("%")[0]) for each in (one, other)]
    except ValueError:
        return False
    first, second = (getattr(number, "ipv4_mapped", None) or number for number in numbers)
    return first == second


def peer_name(address: str) -> str:
    """Return what counts as one peer: an IPv4 address, or the network of an IPv6 one.

    A host with IPv6 may take any address of its network of 64 bits. Hosts with link-local addresses
    are all in one network, so there the address counts.
    """
    plain = address.partition("%")[0]
    number = ipaddress.ip_address(plain)
    if isinstance(number, ipaddress.IPv4Address):
        return str(number)
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    if number.is_link_local or number.is_loopback:
        return str(number)
    return str(ipaddress.ip_network((number, _IPV6_BITS), strict=False))


def authority(host: str, port: int) -> str:
    """Return host and port as they stand in a URL."""
    return f"[{host}]:{port}" if is_ipv6(host) else f"{host}:{port}"


def resolve(host: str, port: int, kind: socket.SocketKind = socket.SOCK_DGRAM) -> list[Place]:
    """Return what a name or an address stands for, addresses of IPv4 first.

    Raises:
        OSError: If it stands for nothing; the text does not name the host.
    """
    address, percent, zone = host.partition("%")
    if is_ipv6(address) and percent and not zone.isdigit():
        try:
            socket.if_nametoindex(zone)
        except OSError:
            raise OSError(f"this host has no interface {zone}") from None
    if is_ipv6(address) and not percent and _is_link_local(address):
        raise OSError(
            f"{address} is a link-local address, to which an interface must be named: "
            f"{address}%eth0, for example"
        )
    try:
        found = socket.getaddrinfo(host, port, type=kind)
    except UnicodeError:
        raise OSError("this cannot be the name of a host") from None
    places = [
        Place(family, where)
        for family, _, _, _, where in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]
    return sorted(dict.fromkeys(places), key=lambda place: place.family != socket.AF_INET)


def route_to(host: str, port: int) -> Route:
    """Return the way to a host, of its first address to which there is one. Sends nothing.

    Raises:
        OSError: If the name stands for nothing, or there is no route.
    """
    failure: OSError | None = None
    for place in resolve(host, port):
        with socket.socket(place.family, socket.SOCK_DGRAM) as probe:
            try:
                # The kernel only chooses the route.
                probe.connect(place.where)
            except OSError as error:
                failure = failure or error
                continue
            mtu = probe.getsockopt(
                *(
                    (socket.IPPROTO_IPV6, _IPV6_MTU)
                    if place.family == socket.AF_INET6
                    else (socket.IPPROTO_IP, _IP_MTU)
                )
            )
            return Route(named(probe.getsockname())[0], min(mtu, _PACKET_MAX))
    assert failure is not None, "a name stands for something, or resolve raises"
    raise failure


def lanes_for_mtu(mtu: int, address: str) -> int:
    """Return for how many lanes a full packet to an address of this family fits an MTU.

    Raises:
        ValueError: If not even one block fits.
    """
    if not is_ipv6(address):
        return wire.lanes_for_mtu(mtu)
    try:
        return wire.lanes_for_mtu(mtu - _LONGER_HEADER_BYTES)
    except ValueError:
        raise ValueError(f"an MTU of {mtu} bytes holds no packet with a block over IPv6") from None


def never_fragment(udp: socket.socket) -> None:
    """Have what is longer than the path's MTU refused, and not cut."""
    udp.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
    if udp.family == socket.AF_INET6:
        udp.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)


def connect_tcp(host: str, port: int, timeout_s: float) -> tuple[socket.socket, str]:
    """Connect to the first address of a host that accepts it.

    Returns:
        The socket, and how to name the host so that others come to the same address: as it was
        named, if that is the first one that it stands for.

    Raises:
        OSError: If none accepts it in time.
    """
    deadline = time.monotonic() + timeout_s
    places = resolve(host, port, socket.SOCK_STREAM)
    failure: OSError | None = None
    for number, place in enumerate(places):
        tcp = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            # The rest of the time is for all that are left.
            left_s = max(1e-3, deadline - time.monotonic())
            tcp.settimeout(left_s / (len(places) - number))
            tcp.connect(place.where)
        except OSError as error:
            tcp.close()
            failure = failure or error
        except BaseException:
            tcp.close()
            raise
        else:
            return tcp, host if number == 0 else place.host
    assert failure is not None, "a name stands for something, or resolve raises"
    raise failure


def _is_link_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_link_local
    except ValueError:
        return False
