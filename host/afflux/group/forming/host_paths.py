"""The hosts of a group and the paths between them: which interfaces all can use, and how.

Of each host the least rank is the *leader*. Every rank follows these steps in the store:

    leaders   publish their host's addresses, one for each interface   address/<r>
    leaders   probe the paths, publish what they have heard            paths/<r>

The first interfaces of all hosts make a *network*, the second ones another, and so on. A network
carries sums if all hosts have it and all of its paths carry packets both ways. All ranks read the
same, so they agree on the networks that do.
"""

import contextlib
import functools
import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from afflux.group.forming.path_probe import PathProbe, run_probes
from afflux.group.settings.aggregator_url import local_address_towards
from afflux.group.settings.host_address import (
    address_among,
    address_of_interface,
    is_loopback,
    own_address,
)
from afflux.group.settings.ipv6_addresses import ipv6_addresses
from afflux.group.settings.variables import Settings
from afflux.group.store.exchange import Exchange, RendezvousError, StepFailed
from afflux_drivers.addresses import is_ipv6
from afflux_hdl.contract import wire

__all__ = ["PROBE_S", "HostPaths"]

_log = logging.getLogger("afflux")

PROBE_S = 1.5
"""All paths are probed at once; with what the store takes this stays below two seconds."""


class _Port(NamedTuple):
    """One interface of a host.

    Attributes:
        interface: As AFFLUX_INTERFACE names it; empty if that is not set.
        address, port: Where the host's leader probes from.
        error: Why it cannot be used; empty if it can.
    """

    interface: str
    address: str = ""
    port: int = 0
    error: str = ""


class _Host(NamedTuple):
    name: str
    ports: list[_Port]


class HostPaths:
    """One rank's view of the paths between the hosts of its group.

    Args:
        exchange: The group's.
        rank: Own rank.
        hosts: The ranks of each host, in order of the leaders.
        key: 16 bytes in hexadecimal, for the probes.
        settings: Own.
        master: Name or address of the store's server, which is on another host perhaps.

    Attributes:
        leaders: Of each host.
        own: Number of the own host.
        networks: Numbers of those that carry sums, once `find` has found them.
    """

    def __init__(
        self,
        exchange: Exchange,
        rank: int,
        hosts: Sequence[Sequence[int]],
        key: str,
        settings: Settings,
        master: str,
    ) -> None:
        self._exchange = exchange
        self._rank = rank
        self._key = bytes.fromhex(key)
        self._settings = settings
        self._master = master
        self.leaders = [ranks[0] for ranks in hosts]
        self.own = next(n for n, ranks in enumerate(hosts) if rank in ranks)
        self.networks: list[int] = []
        self._hosts: list[_Host] = []
        self._probes: dict[int, PathProbe] = {}

    def find(self) -> int:
        """Find the networks that carry sums; return the most lanes of all their paths. Collective.

        Raises:
            StepFailed: There is none; at every rank.
            RendezvousError: Leaders did not come.
        """
        exchange, leaders = self._exchange, self.leaders
        leads = self._rank in leaders
        try:
            if leads:
                exchange.publish_part("address", self._bind)
            found = exchange.parts("address", leaders, self._settings.connect_timeout_s)
            self._hosts = [
                _Host(each["name"], [_Port(**port) for port in each["ports"]]) for each in found
            ]
            reasons = self._incomplete()
            tried = [n for n in range(self._most()) if n not in reasons]
            if leads and tried:
                self._probe(tried)
            patience_s = PROBE_S + self._settings.connect_timeout_s
            heard = exchange.parts("paths", leaders, patience_s, self.name) if tried else []
        finally:
            for probe in self._probes.values():
                probe.close()
        # Of each network, what each host has heard.
        rows = {number: [row[n] for row in heard] for n, number in enumerate(tried)}
        reasons |= {number: why for number in tried if (why := self._trouble(number, rows[number]))}
        self.networks = [number for number in tried if number not in reasons]
        self._judge(reasons)
        carried = [
            lanes
            for number in self.networks
            for row in rows[number]
            for lanes in row["lanes"].values()
        ]
        return min(carried, default=wire.LANES_MAX)

    def address(self, network: int) -> str:
        """Return the address of the own host in a network."""
        return self._hosts[self.own].ports[network].address

    def host_name(self, leader: int) -> str:
        """Return the name of a leader's host."""
        return self._hosts[self.leaders.index(leader)].name

    def name(self, leader: int, network: int | None = None) -> str:
        """Name a leader with its host, and the host's address in a network, or its first one."""
        host = self._hosts[self.leaders.index(leader)]
        ports = host.ports if network is None else host.ports[network : network + 1]
        address = next((port.address for port in ports if port.address), "")
        return f"{leader} on {host.name}{f' ({address})' if address else ''}"

    def _most(self) -> int:
        return max(len(host.ports) for host in self._hosts)

    def _bind(self) -> dict[str, Any]:
        """Open a probe at each of the own interfaces; return what to publish about this host."""
        ports: list[_Port] = []
        wanted = self._settings.interface or ()
        for number, interface in enumerate(wanted or ("",)):
            try:
                address = address_of_interface(interface) if interface else self._find_address()
                twin = next((port for port in ports if port.address == address), None)
                if twin is not None:
                    raise OSError(f"it has the address {address}, as {twin.interface}")
                probe = PathProbe(address, self._key, self.own)
            except OSError as error:
                if len(wanted) <= 1:
                    raise
                ports.append(_Port(interface, error=str(error)))
            else:
                self._probes[number] = probe
                ports.append(_Port(interface, *probe.address[:2]))
        if not self._probes:
            raise OSError("; ".join(port.error for port in ports))
        return {"name": socket.gethostname(), "ports": [port._asdict() for port in ports]}

    def _find_address(self) -> str:
        """Return this host's address, for its leader, where no interface is named."""
        if len(self.leaders) == 1:
            return own_address(None, self._master)

        def others() -> Iterator[str]:
            # On the host of the store's server: by the route to another.
            if self.own == 0:
                with contextlib.suppress(RendezvousError):
                    patience_s = self._settings.connect_timeout_s
                    for each in self._exchange.parts("address", self.leaders[1:], patience_s):
                        addresses = (port["address"] for port in each["ports"])
                        yield next(filter(None, addresses))

        return address_among(None, self._master, others)

    def _incomplete(self) -> dict[int, str]:
        """Return why networks are not tried: hosts that do not have them."""
        reasons: dict[int, str] = {}
        first = self._hosts[0]
        for number in range(self._most()):
            for leader, host in zip(self.leaders, self._hosts, strict=True):
                if number >= len(host.ports):
                    count = len(host.ports)
                    more = "s" if count > 1 else ""
                    reasons[number] = (
                        f"rank {self.name(leader)} offers only {count} interface{more}"
                    )
                elif host.ports[number].error:
                    reasons[number] = f"rank {self.name(leader)}: {host.ports[number].error}"
                elif is_ipv6(host.ports[number].address) != is_ipv6(first.ports[number].address):
                    one = self.name(self.leaders[0], number)
                    reasons[number] = (
                        f"rank {one} and rank {self.name(leader, number)} have addresses of "
                        "different families, so no packet passes between them; AFFLUX_INTERFACE "
                        "may name others"
                    )
                if number in reasons:
                    break
        return reasons

    def _probe(self, tried: Sequence[int]) -> None:
        exchange, others = self._exchange, [rank for rank in self.leaders if rank != self._rank]
        published = False
        probes = [self._probes[number] for number in tried]

        def heard() -> None:
            nonlocal published
            found = [
                {"lanes": probe.found, "error": self._misled(number)}
                for number, probe in zip(tried, probes, strict=True)
            ]
            exchange.publish_part("paths", lambda: found)
            published = True

        try:
            for number, probe in zip(tried, probes, strict=True):
                probe.begin(
                    {
                        other: (host.ports[number].address, host.ports[number].port)
                        for other, host in enumerate(self._hosts)
                        if other != self.own
                    }
                )
            run_probes(probes, heard, lambda: exchange.have_parts("paths", others), PROBE_S)
        except Exception as error:
            reason = error
            if published:
                # The others have what they need of this host.
                _log.debug("the probes ended early", exc_info=True)
                return

            def failed() -> None:
                raise reason

            exchange.publish_part("paths", failed)

    def _misled(self, network: int) -> str:
        """Return where packets leave that are for one of several networks, if not there."""
        if self._most() == 1:
            return ""
        own = self.address(network)
        # An interface may have several addresses of IPv6, and the route takes any of them.
        same = next((each for each in ipv6_addresses().values() if own in each), [own])
        for other, host in enumerate(self._hosts):
            there = host.ports[network].address
            here = local_address_towards(there)
            # If there is no route, which is a loopback address here, nothing will come there.
            if other != self.own and here not in same and not is_loopback(here):
                return (
                    f"packets to {there} leave from {here}, not from {own}: each interface needs "
                    "a network of its own"
                )
        return ""

    def _trouble(self, network: int, heard: Sequence[dict[str, Any]]) -> str:
        """Return why a network carries no sums; empty if it does."""
        for leader, row in zip(self.leaders, heard, strict=True):
            if row["error"]:
                return f"rank {self.name(leader, network)}: {row['error']}"
        silent = [
            (int(number), listener)
            for listener, row in enumerate(heard)
            for number, lanes in row["lanes"].items()
            if lanes == 0
        ]
        if not silent:
            return ""
        sender, listener = (self.name(self.leaders[each], network) for each in silent[0])
        more = f", nor of {len(silent) - 1} more pairs" if len(silent) > 1 else ""
        return (
            f"no UDP packet of data size from rank {sender} reaches rank {listener} in "
            f"{PROBE_S:g} s{more}"
        )

    def _judge(self, reasons: dict[int, str]) -> None:
        """Go on with what is left: with one warning, or with an error if it is nothing."""
        if not self.networks:
            several = len(reasons) > 1
            raise StepFailed(
                "; ".join(
                    f"{self._label(number)}: {why}" if several else why
                    for number, why in sorted(reasons.items())
                )
            )
        if reasons and self._rank == 0:
            _warn_of_less(
                ", ".join(map(self._label, self.networks)),
                "; ".join(f"{self._label(number)}: {why}" for number, why in reasons.items()),
            )

    def _label(self, network: int) -> str:
        """Return the interface's name, as the first host has it that has the network."""
        ports = (host.ports[network] for host in self._hosts if network < len(host.ports))
        return next(ports).interface or "the interface that routes to the others"


@functools.cache
def _warn_of_less(used: str, reasons: str) -> None:
    """Warn that not all interfaces are used; once, not for each group."""
    _log.warning(
        "of the interfaces in AFFLUX_INTERFACE only %s can be used by all hosts: %s", used, reasons
    )
