"""Multicast groups for tests, on the loopback interface."""

import socket

from afflux_drivers.sockets import MulticastGroup

LOOPBACK = "127.0.0.1"
ADDRESS = "239.255.71.3"


def free_group() -> MulticastGroup:
    """Return a group on a port that nobody uses now, so that runs beside this one stay apart."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((LOOPBACK, 0))
        return MulticastGroup(ADDRESS, probe.getsockname()[1])


def why_no_group(group: MulticastGroup) -> str:
    """Return why the loopback interface carries nothing to this group; empty if it does.

    Asked of plain sockets: what the tests are about must not be able to have them skipped.
    """
    loopback = socket.inet_aton(LOOPBACK)
    membership = socket.inet_aton(group.address) + loopback
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        try:
            receiver.bind(("", group.port))
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
            sender.sendto(b"x", (group.address, group.port))
            receiver.settimeout(1)
            receiver.recv(1)
        except OSError as error:
            return f"the loopback interface carries no multicast here: {error}"
    return ""
