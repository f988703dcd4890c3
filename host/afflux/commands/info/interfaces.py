"""The network interfaces of this machine, and their largest packets."""

import contextlib
import fcntl
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from afflux.commands.info.offloads import read_driver, read_offloads
from afflux.group.settings.ipv6_addresses import ipv6_addresses
from afflux_drivers.addresses import lanes_for_mtu

__all__ = ["Interface", "read_interfaces"]

_SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Interface:
    """One interface.

    Attributes:
        name: The kernel's.
        up: Whether it is up, as far as the kernel knows.
        loopback: Whether it leads back to this machine only.
        mtu: Bytes of the largest IP packet.
        lanes: Blocks that a packet of Afflux may hold at this MTU, 0 if not one fits.
        speed_mbit_per_s: Speed of the link; None if the driver does not report it.
        address: Of IPv4, or of IPv6 if it has no other for hosts elsewhere; empty if it has none.
        driver: Empty if unknown.
        offloads: Whether each is on, by the kernel's names.
    """

    name: str
    up: bool
    loopback: bool
    mtu: int
    lanes: int
    speed_mbit_per_s: int | None
    address: str
    driver: str
    offloads: dict[str, bool]


def read_interfaces(folder: Path = Path("/sys/class/net")) -> list[Interface]:
    """Return all interfaces, those that are up first; none where there is no such folder."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        mtu = _number(path / "mtu")
        if mtu is None:
            continue
        flags = int(_word(path / "flags") or "0", 16)
        speed = _number(path / "speed")
        address = _address(path.name)
        found.append(
            Interface(
                name=path.name,
                up=bool(flags & 1) and _word(path / "operstate") != "down",
                loopback=bool(flags & 8),
                mtu=mtu,
                lanes=_lanes(mtu, address),
                speed_mbit_per_s=speed if speed and speed > 0 else None,
                address=address,
                driver=read_driver(path.name),
                offloads=read_offloads(path.name),
            )
        )
    return sorted(found, key=lambda each: (not each.up, each.loopback))


def _lanes(mtu: int, address: str) -> int:
    try:
        # The length field of an IP packet ends there.
        return lanes_for_mtu(min(mtu, 65535), address)
    except ValueError:
        return 0


def _address(interface: str) -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16s24x", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])
    return next(iter(ipv6_addresses().get(interface, [])), "")


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_word(path))
    except ValueError:
        return None
