"""Where the registers of a device are, as a URL.

| URL | registers |
|---|---|
| `udp://10.0.0.9[:4699]` | an appliance's, in management packets (`docs/management.md`) |
| `pcie://0000:3b:00.0[?bar=2&offset=0x100000]` | a card's, in a BAR that this host maps |
| `file:///path[?offset=0]` | in a file: a UIO device, the BAR of another shell, or a stand-in |
"""

import contextlib
import ipaddress
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit

from afflux_drivers.addresses import is_ipv6
from afflux_drivers.device.shells import OPEN_NIC
from afflux_hdl.contract import management

__all__ = ["EXPECTED", "DeviceUrl"]

EXPECTED = (
    "udp://ADDRESS[:PORT], pcie://0000:3b:00.0[?bar=2&offset=0x100000] or "
    "file:///path[?offset=0x1000]"
)
"""The forms of a device's URL, for messages."""

_FUNCTION = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<rest>[0-9a-f]{2}:[01][0-9a-f]\.[0-7])", re.IGNORECASE
)
_HOST = re.compile(r"(?P<host>[^][:@/?#\s]+)(:(?P<port>[0-9]*))?")
_BARS = 6
_OFFSETS = 1 << 40
_ALIGNED = 4


@dataclass(frozen=True)
class DeviceUrl:
    """The URL of a device. `str` gives it back in one form for each device, without defaults.

    Attributes:
        scheme: "udp", "pcie" or "file".
        place: Host of an appliance, PCIe function as 0000:3b:00.0, or absolute path of a file.
        port: UDP port; 0 unless `scheme` is "udp".
        bar: Number of the BAR; 0 unless `scheme` is "pcie".
        offset: Of the engine's first register in BAR or file, in bytes.
    """

    scheme: str
    place: str
    port: int = 0
    bar: int = 0
    offset: int = 0

    def __str__(self) -> str:
        if self.scheme == "udp":
            suffix = "" if self.port == management.PORT else f":{self.port}"
            return f"udp://{self.place}{suffix}"
        if self.scheme == "file":
            suffix = f"?offset={self.offset:#x}" if self.offset else ""
            return f"file://{quote(os.fsencode(self.place), safe='/:')}{suffix}"
        options = [f"bar={self.bar}"] * (self.bar != OPEN_NIC.bar)
        options += [f"offset={self.offset:#x}"] * (self.offset != OPEN_NIC.offset)
        return f"pcie://{self.place}{'?' * bool(options)}{'&'.join(options)}"

    @classmethod
    def parse(cls, text: str) -> "DeviceUrl":
        """Read a URL.

        Raises:
            ValueError: It is none of a device; the message says what is wrong, and shows the URL.
        """
        try:
            return _parse(text)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}; expected {EXPECTED}") from None


def _parse(text: str) -> DeviceUrl:
    parts = urlsplit(text)
    if parts.scheme not in _SCHEMES:
        raise ValueError("this is not the URL of a device")
    if parts.fragment:
        raise ValueError(f"it ends with #{parts.fragment}")
    options: dict[str, int] = {}
    make, allowed = _SCHEMES[parts.scheme]
    for name, value in parse_qsl(
        parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)
    ):
        if name not in allowed or name in options:
            raise ValueError(f"option {name!r} is not known here, or is there twice")
        options[name] = _number(name, value)
    return make(parts.netloc, parts.path, options)


def _number(name: str, text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise ValueError(f"{name}={text} is not a number") from None
    limit = _BARS if name == "bar" else _OFFSETS
    if not 0 <= value < limit:
        raise ValueError(f"{name}={text} must be at least 0 and less than {limit}")
    if name == "offset" and value % _ALIGNED:
        raise ValueError(f"offset={text} must be a multiple of {_ALIGNED}")
    return value


def _udp(authority: str, path: str, options: dict[str, int]) -> DeviceUrl:
    if path:
        raise ValueError(f"an address has no path {path!r}")
    if is_ipv6(authority.partition("]")[0].lstrip("[")) and authority.startswith("["):
        raise ValueError("boards have IPv4 only")
    with contextlib.suppress(ipaddress.AddressValueError):
        ipaddress.IPv6Address(authority)
        raise ValueError("boards have IPv4 only")
    match = _HOST.fullmatch(authority)
    if match is None:
        raise ValueError("there is no address")
    port = int(match["port"]) if match["port"] else management.PORT
    if not 0 < port < 1 << 16:
        raise ValueError(f"port {port} must be from 1 to 65535")
    return DeviceUrl("udp", match["host"], port=port)


def _pcie(function: str, path: str, options: dict[str, int]) -> DeviceUrl:
    match = _FUNCTION.fullmatch(function)
    if path or match is None:
        raise ValueError(f"{function + path!r} is not a PCIe function, as lspci -D shows them")
    return DeviceUrl(
        "pcie",
        f"{match['domain'] or '0000'}:{match['rest']}".lower(),
        bar=options.get("bar", OPEN_NIC.bar),
        offset=options.get("offset", OPEN_NIC.offset),
    )


def _file(authority: str, path: str, options: dict[str, int]) -> DeviceUrl:
    if authority:
        raise ValueError(f"a file is on this host, not on {authority!r}: three slashes")
    # The name of a file has bytes, of whatever encoding.
    name = os.fsdecode(unquote_to_bytes(os.fsencode(path)))
    if not Path(name).is_absolute():
        raise ValueError("the path of a file must be absolute")
    return DeviceUrl("file", name, offset=options.get("offset", 0))


_Make = Callable[[str, str, dict[str, int]], DeviceUrl]
_SCHEMES: dict[str, tuple[_Make, Iterable[str]]] = {
    "udp": (_udp, ()),
    "pcie": (_pcie, ("bar", "offset")),
    "file": (_file, ("offset",)),
}
