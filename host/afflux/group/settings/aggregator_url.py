"""AFFLUX_AGGREGATOR as a value, and which local address and packet size lead there."""

import difflib
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from afflux_drivers.addresses import authority, is_loopback, route_to
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import wire
from afflux_sim.rtl.waves import Waves

__all__ = ["AggregatorUrl", "lanes_to", "local_address_towards"]

_FORMS = {
    "auto": "auto",
    "shm": "shm://",
    "soft": "soft://[?group=address:port]",
    "rtl": "rtl://[?bus_bits=32|512][&group=address:port][&waves=file.fst|file.vcd"
    "[&waves_window=from:to]]",
    "board": "board://",
    "streams": "streams://[host[:port]]",
    "gloo": "gloo://",
    "udp": "udp://host[:port][?parent=host[:port]]",
}
"""The forms of AFFLUX_AGGREGATOR, by scheme; of udp several may stand with commas between. An IPv6
address as host stands in brackets."""

_SCHEMES = tuple(_FORMS)[1:]
_BUS_BITS = 512
_LOOPBACK = "127.0.0.1"
_ANY_PORT = 9
_IN_BRACKETS = re.compile(r"\[(?P<host>[^][]*)\](:(?P<port>[0-9]*))?")
_PLAIN = re.compile(r"(?P<host>[^][:@/?#\s]+)(:(?P<port>[0-9]*))?")


@dataclass(frozen=True)
class AggregatorUrl:
    """Where sums are made. `str` gives the URL back, with the port and without defaults.

    Attributes:
        scheme: "shm" for the memory of the ranks' host, "streams" for streams between the
            ranks, and to an aggregator if one is named, "gloo" for Gloo alone, "soft", "rtl" or
            "board" for an engine that rank 0 starts, "udp" for one that is running, "auto" for the
            memory of the ranks' host if they have one in common, and what
            `afflux.group.reducers.topology` chooses if not.
        host: Name or address of an aggregator, without brackets; empty if none is named.
        port: Its UDP and TCP port; 0 if none is named.
        bus_bits: Bus width of the simulated engine.
        group: Multicast group for the results of an engine that rank 0 starts; None if they go to
            each rank.
        waves: Which waves the simulated engine writes; None: none.
        parent: Host and port of the aggregator of which this one is a worker; None without one.
        others: Hosts and ports of further aggregators, which share the columns with the first.
    """

    scheme: str
    host: str = ""
    port: int = 0
    bus_bits: int = _BUS_BITS
    group: MulticastGroup | None = None
    waves: Waves | None = None
    parent: tuple[str, int] | None = None
    others: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        if self.scheme == "auto":
            return "auto"
        if self.others:
            return ",".join(f"udp://{authority(*each)}" for each in self.addresses)
        options = {}
        if self.bus_bits != _BUS_BITS:
            options["bus_bits"] = str(self.bus_bits)
        if self.group is not None:
            options["group"] = str(self.group)
        if self.waves is not None:
            options["waves"] = str(self.waves.path)
            if self.waves.window is not None:
                options["waves_window"] = self.waves.window
        if self.parent is not None:
            options["parent"] = authority(*self.parent)
        where = authority(self.host, self.port) if self.host else ""
        query = urlencode(options, safe=":[]/")
        return f"{self.scheme}://{where}{'?' if query else ''}{query}"

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports of all aggregators of packets that are named."""
        return ((self.host, self.port), *self.others) if self.scheme == "udp" else ()

    @property
    def each(self) -> list[str]:
        """The URLs of all aggregators of packets that are named, one by one."""
        if not self.others:
            return [] if self.embedded else [str(self)]
        return [f"udp://{authority(*each)}" for each in self.addresses]

    @property
    def embedded(self) -> bool:
        """Whether no aggregator of packets is named."""
        return self.scheme != "udp"

    @property
    def may_share(self) -> bool:
        """Whether ranks of one host sum in shared memory."""
        return self.scheme in ("auto", "shm")

    @classmethod
    def parse(cls, text: str) -> "AggregatorUrl":
        """Read a URL.

        Raises:
            ValueError: It is none. The message gives the reason, and what would do instead.
        """
        if text == "auto":
            return cls("auto")
        if "," in text:
            return cls._several(text.split(","))
        scheme, separator, rest = text.partition("://")
        if not separator:
            raise ValueError(f"there is no scheme; {_instead(text)}")
        if scheme not in _SCHEMES:
            raise ValueError(f"unknown scheme {scheme!r}; {_instead(rest, scheme)}")
        try:
            return cls._parse(text)
        except ValueError as error:
            raise ValueError(f"{error}; expected {_FORMS[scheme]}") from None

    @classmethod
    def parse_running(cls, text: str) -> "AggregatorUrl":
        """Read the URL of an aggregator that runs by itself, or of several.

        Raises:
            ValueError: It is none.
        """
        url = cls.parse(text)
        if url.embedded:
            why = "it has no control channel" if url.host else "ranks start this one themselves"
            raise ValueError(f"{text!r}: {why}; expected udp://host[:port]")
        return url

    @classmethod
    def _parse(cls, text: str) -> "AggregatorUrl":
        parts = urlsplit(text)
        if parts.path.strip("/") or parts.fragment or parts.username:
            raise ValueError("only options may follow the address")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        host, port, parent = "", 0, None
        if parts.scheme == "udp" or (parts.scheme == "streams" and parts.netloc):
            host, port = _host_and_port(parts.netloc)
            if "parent" in options and parts.scheme == "udp":
                parent = _host_and_port(options.pop("parent"))
        elif parts.netloc:
            raise ValueError(f"{parts.scheme}:// takes no host: the ranks provide it themselves")
        bus_bits = options.pop("bus_bits", str(_BUS_BITS)) if parts.scheme == "rtl" else "512"
        group = options.pop("group", None) if parts.scheme in ("soft", "rtl") else None
        waves = _waves(options) if parts.scheme == "rtl" else None
        if options:
            raise ValueError(f"{parts.scheme}:// has no option {', '.join(options)}")
        if bus_bits not in ("32", "512"):
            raise ValueError(f"bus_bits must be 32 or 512, not {bus_bits!r}")
        where = MulticastGroup.parse(group) if group is not None else None
        return cls(parts.scheme, host, port, int(bus_bits), where, waves, parent)

    @classmethod
    def _several(cls, texts: list[str]) -> "AggregatorUrl":
        """Read a list of aggregators that share the columns."""
        addresses = []
        for text in texts:
            one = cls.parse(text.strip())
            if one.scheme != "udp" or one.parent is not None:
                raise ValueError(f"{text!r} in a list must be udp://host[:port]")
            addresses.append((one.host, one.port))
        if len(set(addresses)) < len(addresses):
            raise ValueError("an aggregator is named twice")
        return cls("udp", *addresses[0], others=tuple(addresses[1:]))


def _instead(rest: str, scheme: str = "") -> str:
    """Return the one hint that helps where a URL has no scheme, or one that is not known."""
    near = difflib.get_close_matches(scheme or rest, _FORMS, n=1)
    if near and near[0] != "udp":
        return f"did you mean {_FORMS[near[0]].partition('[')[0]}?"
    try:
        _host_and_port(rest)
    except ValueError:
        return f"known are {', '.join(_FORMS)}; a running aggregator is udp://host[:port]"
    return f"did you mean udp://{rest}?"


def _waves(options: dict[str, str]) -> Waves | None:
    """Take the options that are about waves, if there are any."""
    window = options.pop("waves_window", None)
    if "waves" in options:
        return Waves.parse(options.pop("waves"), window)
    if window is not None:
        raise ValueError(
            f"waves_window {window!r}: this is for waves only, which no option asks for"
        )
    return None


def _host_and_port(text: str) -> tuple[str, int]:
    """Split a text such as host:4700, host or [fd00::1]:4700. Raises `ValueError` if it is none."""
    found = _IN_BRACKETS.fullmatch(text) or _PLAIN.fullmatch(text)
    if found is None and text.count(":") > 1 and "[" not in text:
        raise ValueError(
            f"{text!r} has several colons: an IPv6 address stands in brackets, as "
            f"[fd00::1]:{wire.PORT}"
        )
    if found is None:
        raise ValueError(f"{text!r} is not a host or host:port")
    port = int(found["port"] or wire.PORT)
    if not 0 < port < 1 << 16:
        raise ValueError(f"{text!r} has the port {port}: it must be from 1 to 65535")
    return _ipv6(found["host"]) if text.startswith("[") else found["host"].lower(), port


def _ipv6(text: str) -> str:
    """Return an IPv6 address in its usual form. Raises `ValueError` if the text is none."""
    # In a URL the percent sign may be written as itself (RFC 9844) or encoded (RFC 6874).
    address, percent, zone = re.sub("%25(?=.)", "%", text).partition("%")
    try:
        number = ipaddress.IPv6Address(address)
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv6 address") from None
    if number.is_multicast:
        raise ValueError(f"{text!r} is a multicast address, and of IPv6")
    if number.is_link_local and not zone:
        raise ValueError(
            f"{text!r} is a link-local address, to which the interface that leads there must be "
            f"named, as [{number}%eth0]"
        )
    return f"{number}{percent}{zone}"


def local_address_towards(host: str) -> str:
    """Return the local address that leads to `host`; loopback if none does."""
    try:
        return route_to(host, _ANY_PORT).own
    except OSError:
        return _LOOPBACK


def lanes_to(host: str, port: int) -> int:
    """Return the most lanes whose packets the route to `host` carries unfragmented.

    Raises:
        OSError: The name does not resolve, or there is no route.
        ValueError: Not even a packet of one block fits.
    """
    route = route_to(host, port)
    return wire.LANES_MAX if is_loopback(route.own) else route.lanes
