"""The IPv6 addresses of this host's interfaces that mean something to other hosts."""

import contextlib
import ipaddress
from pathlib import Path

__all__ = ["ipv6_addresses", "link_local_addresses"]

_TABLE = Path("/proc/net/if_inet6")

# The kernel's scopes and flags (linux/ipv6.h, linux/if_addr.h).
_LINK, _HOST = 0x20, 0x10
_TEMPORARY, _FAILED, _DEPRECATED, _TENTATIVE = 0x01, 0x08, 0x20, 0x40


def ipv6_addresses(table: Path = _TABLE) -> dict[str, list[str]]:
    """Return the addresses of each interface that has one, those first that stay longest.

    Addresses of the loopback interface and link-local ones are left out, and those that the kernel
    does not use, or not yet.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for address, scope, flags, name in _rows(table):
        if scope in (_LINK, _HOST) or flags & (_FAILED | _TENTATIVE):
            continue
        found.setdefault(name, []).append((flags & (_DEPRECATED | _TEMPORARY), address))
    return {
        name: [address for _, address in sorted(each, key=lambda pair: pair[0])]
        for name, each in found.items()
    }


def link_local_addresses(table: Path = _TABLE) -> dict[str, str]:
    """Return a link-local address of each interface that has one."""
    return {name: address for address, scope, _, name in _rows(table) if scope == _LINK}


def _rows(table: Path) -> list[tuple[str, int, int, str]]:
    """Return address, scope, flags and interface of each row; none where there is no IPv6."""
    rows = []
    with contextlib.suppress(OSError, ValueError):
        for line in table.read_text(encoding="ascii").splitlines():
            number, _, _, scope, flags, name = line.split()
            address = ipaddress.IPv6Address(int(number, 16))
            rows.append((str(address), int(scope, 16), int(flags, 16), name))
    return rows
