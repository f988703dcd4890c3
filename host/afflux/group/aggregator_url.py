"""AFFLUX_AGGREGATOR as a value, and which local address and packet size lead there."""

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from afflux.settings import SettingsError
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import wire

__all__ = ["Location", "lanes_to", "local_address_towards"]

_LOOPBACK = "127.0.0.1"
_IP_MTU = 14
"""Linux: the MTU of a connected socket's route; the socket module does not name it."""

_IP_HEADER_MAX_MTU = 65535


@dataclass(frozen=True)
class Location:
    """Where sums are made.

    Attributes:
        scheme: "shm" for the memory of the ranks' host, "soft" or "rtl" for an engine that rank 0
            starts, "udp" for one that runs, "auto" for the first of these two that is possible.
        host: Name or address; empty unless scheme is "udp".
        port: UDP and TCP port; 0 unless scheme is "udp".
        bus_bits: Of the simulated engine.
        group: Multicast group for the results of an engine that rank 0 starts, as address:port;
            empty if they go to each rank.
        parent: Host and port of the aggregator of which this one is a worker; None without.
    """

    scheme: str
    host: str = ""
    port: int = 0
    bus_bits: int = 512
    group: str = ""
    parent: tuple[str, int] | None = None

    @property
    def embedded(self) -> bool:
        """Whether rank 0 provides what sums."""
        return self.scheme != "udp"

    @property
    def may_share(self) -> bool:
        """Whether ranks of one host sum in shared memory."""
        return self.scheme in ("auto", "shm")

    @property
    def elsewhere(self) -> "Location":
        """Where sums are made if the ranks share no memory."""
        return Location("soft") if self.scheme == "auto" else self

    @classmethod
    def parse(cls, url: str) -> "Location":
        """Read a URL.

        Raises:
            SettingsError: It is none of auto, shm://, soft://, rtl://, udp://host[:port]. Options:
                bus_bits=32 or 512 for rtl, group=address:port for soft and rtl, parent=host[:port]
                for udp.
        """

        def wrong(why: str) -> SettingsError:
            return SettingsError(
                f"AFFLUX_AGGREGATOR={url!r}: {why}; expected auto, shm://, soft://, "
                "rtl://[?bus_bits=512] or udp://host[:port]"
            )

        if url == "auto":
            return cls("auto")
        parts = urlsplit(url)
        if "://" not in url or parts.scheme not in ("shm", "soft", "rtl", "udp"):
            raise wrong("unknown scheme")
        if parts.path.strip("/") or parts.fragment or parts.username:
            raise wrong("nothing may follow the address")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.scheme == "udp":
            above = options.pop("parent", None)
            if options:
                raise wrong(f"unknown option {', '.join(options)}")
            try:
                parent = _host_and_port(above) if above is not None else None
                return cls("udp", *_host_and_port(parts.netloc), parent=parent)
            except ValueError as error:
                raise wrong(str(error)) from None
        if parts.netloc:
            raise wrong(f"{parts.scheme}:// is of the ranks themselves and takes no host")
        bus_bits = options.pop("bus_bits", "512") if parts.scheme == "rtl" else "512"
        group = options.pop("group", None) if parts.scheme != "shm" else None
        if options:
            raise wrong(f"unknown option {', '.join(options)}")
        if bus_bits not in ("32", "512"):
            raise wrong("bus_bits is 32 or 512")
        try:
            name = str(MulticastGroup.parse(group)) if group is not None else ""
        except ValueError as error:
            raise wrong(str(error)) from None
        return cls(parts.scheme, bus_bits=int(bus_bits), group=name)


def _host_and_port(text: str) -> tuple[str, int]:
    """Host and port of a text such as host:4700 or host. Raises `ValueError` if it is none."""
    parts = urlsplit(f"//{text}")
    port = wire.PORT if parts.port is None else parts.port
    if not parts.hostname or "@" in text or parts.netloc != text or not 0 < port < 1 << 16:
        raise ValueError(f"{text!r} is not a host with at most a port")
    return parts.hostname, port


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def local_address_towards(host: str) -> str:
    """The local IPv4 address from which `host` is reached; loopback if it does not resolve."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Sends nothing: the kernel only chooses the route.
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return _LOOPBACK


def lanes_to(host: str, port: int) -> int:
    """Most lanes whose packets the route to `host` carries unfragmented.

    Raises:
        OSError: The name does not resolve, or there is no route.
        ValueError: Not even a packet of one block fits.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        if _is_loopback(probe.getsockname()[0]):
            return wire.LANES_MAX
        mtu = probe.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    return wire.lanes_for_mtu(min(mtu, _IP_HEADER_MAX_MTU))
