"""The address by which other hosts reach this one: of an interface, or of the route to them."""

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable, Sequence

from afflux.group.settings.aggregator_url import local_address_towards
from afflux.group.settings.ipv6_addresses import ipv6_addresses, link_local_addresses
from afflux_drivers.addresses import is_loopback, resolve

__all__ = [
    "address_among",
    "address_of_interface",
    "default_address",
    "is_loopback",
    "name_of_interface",
    "own_address",
]

_SIOCGIFADDR = 0x8915
_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
_ELSEWHERE = "203.0.113.1"
_ELSEWHERE6 = "2001:db8::1"
"""In nobody's network (RFC 5737 and 3849): the route to them is the default one. Nothing is sent
there."""

_LOOPBACK = "127.0.0.1"


def own_address(interfaces: Sequence[str] | None, towards: str | None) -> str:
    """Return this host's address for others, a loopback one if none is found.

    It is one of IPv4 if there is a choice.

    Args:
        interfaces: Those of AFFLUX_INTERFACE, of which the first counts; None if it is not set.
        towards: Name or address of another host, if one is known. It may turn out to be this one's:
            /etc/hosts often gives the own name a loopback address.

    Raises:
        OSError: There is no such interface.
    """
    if interfaces:
        return address_of_interface(interfaces[0])
    # A list, of which Gloo takes one after the other for its devices.
    for name in filter(None, os.environ.get(_GLOO_INTERFACE, "").split(",")):
        with contextlib.suppress(OSError):
            return address_of_interface(name)
    found = local_address_towards(towards) if towards else default_address()
    # To others the number of an interface of this host says nothing.
    return _LOOPBACK if "%" in found else found


def address_among(
    interfaces: Sequence[str] | None, towards: str | None, others: Callable[[], Iterable[str]]
) -> str:
    """Return this host's address for others that are on further hosts.

    Args:
        interfaces: As for `own_address`.
        towards: As for `own_address`.
        others: Returns addresses of other hosts; asked if `towards` is on this one.

    Raises:
        OSError: It has none that leads to other hosts.
    """
    found = own_address(interfaces, towards)
    if not is_loopback(found):
        return found
    for address in others():
        found = own_address(None, address)
        if not is_loopback(found):
            return found
    found = default_address()
    if not is_loopback(found):
        return found
    raise OSError(
        f"{socket.gethostname()} has no address that leads to other hosts, only {found}; "
        "AFFLUX_INTERFACE names one"
    )


def default_address() -> str:
    """Return the address of the default route, a loopback one if there is none.

    It may lead to another network than that of the other hosts: a last resort.
    """
    found = local_address_towards(_ELSEWHERE)
    return local_address_towards(_ELSEWHERE6) if is_loopback(found) else found


def address_of_interface(interface: str) -> str:
    """Return the address of an interface, the one of IPv4 if it has both kinds.

    Args:
        interface: Its name, its address, or the network that its address is in, as 10.0.0.0/24
            or fd00::/64.

    Raises:
        OSError: There is none, or it has no address for others; names those that there are.
    """
    found = _addresses()
    if interface in found:
        return found[interface]
    with contextlib.suppress(ValueError):
        network = ipaddress.ip_network(interface, strict=False)
        more = [address for each in ipv6_addresses().values() for address in each]
        for address in (*found.values(), *more):
            if ipaddress.ip_address(address) in network:
                return address
        # An interface has further addresses, of which the kernel says which are its own.
        if network.num_addresses == 1 and _is_own(str(network.network_address)):
            return str(network.network_address)
    there = ", ".join(f"{name} {address}" for name, address in found.items()) or "none at all"
    raise OSError(
        f"AFFLUX_INTERFACE={interface}: {socket.gethostname()} has no such interface with an "
        f"address for other hosts, only {there}{_of_link_only(interface)}"
    )


def name_of_interface(address: str) -> str:
    """Return the name of the interface that has an address; empty if none has."""
    names = {each: name for name, each in _addresses().items()}
    for name, more in ipv6_addresses().items():
        names |= dict.fromkeys(more, name)
    return names.get(address, "")


def _addresses() -> dict[str, str]:
    """Return the address of each interface that has one, by name; of IPv4 if there is a choice."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
                found[name] = socket.inet_ntoa(answer[20:24])
    return {name: each[0] for name, each in ipv6_addresses().items()} | found


def _of_link_only(interface: str) -> str:
    """Say so if an interface has a link-local address only."""
    address = link_local_addresses().get(interface)
    if address is None:
        return ""
    return f"; {interface} has the link-local address {address}, which means nothing elsewhere"


def _is_own(address: str) -> bool:
    family, where = resolve(address, 0)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(where)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False
            raise
    return True
