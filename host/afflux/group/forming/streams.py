"""How the ranks of several hosts get streams to each other.

    all   open a port at each interface, publish where they listen              port/<r>
    all   connect with each other in each network, proving that they know the
          group's secret, and publish why they could not                        streams/<r>
    all   let UCX carry the streams, if they all can          ucx/<r>, endpoints/<r>
    all   connect with the aggregator, if there is one                          aggregator/<r>

The first interfaces of all ranks make a *network*, the second ones another, and so on. A network
carries sums if all ranks have it and all of its connections are there. All ranks read the same, so
they agree on the networks that do.
"""

import functools
import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from afflux.group.forming.carrier import connect_ucx, takes_ucx
from afflux.group.forming.one_hop import one_hop_bytes
from afflux.group.settings.carrier import Lacks, lacks
from afflux.group.settings.host_address import address_among, address_of_interface, own_address
from afflux.group.settings.thread_count import thread_count
from afflux.group.settings.variables import Settings
from afflux.group.store.exchange import Exchange, RendezvousError, StepFailed
from afflux_drivers import _native
from afflux_drivers.addresses import is_ipv6
from afflux_drivers.errors import AffluxError, RanksMissing
from afflux_drivers.streams.connecting import connect_aggregator, connect_mesh
from afflux_drivers.streams.handshake import AGGREGATED_RANKS, Member
from afflux_drivers.streams.strangers import Listener

__all__ = ["Aggregator", "Streams", "StreamsGroup", "join_streams"]

_log = logging.getLogger("afflux")

_PATIENCE_S = 10.0
"""A rank may have tried all networks in vain before it says so."""

_SILENT = Lacks("it does not say that it has UCX", "it does not say that it has RDMA")


class StreamsGroup(NamedTuple):
    """A group with streams, as all of its ranks know it.

    Attributes:
        hosts: The ranks of each host.
        meshes: Ranks that have streams to each other: each rank is in one of them, or in none.
        secret: Known to all ranks and nobody else.
        name: Of this incarnation of the group.
        master: Name or address of the store's server, which is on another host perhaps.
    """

    hosts: Sequence[Sequence[int]]
    meshes: Sequence[Sequence[int]]
    secret: bytes
    name: str
    master: str


class Streams(NamedTuple):
    """The streams of one rank.

    Attributes:
        lanes: Connected sockets, non-blocking, by lane, of which each thread has one in each
            network, and by rank of the mesh, None for the own one, then that of the aggregator;
            empty for a rank that is in no mesh.
        threads: How many there are to be.
        one_hop: How many bytes more may be sent to save a hop; the same at all ranks.
        ucx: The lanes as UCX carries them; None if TCP does.
    """

    lanes: list[list[socket.socket | None]]
    threads: int
    one_hop: int
    ucx: _native.UcxLanes | None = None


class Aggregator(NamedTuple):
    """The aggregator of a group.

    Attributes:
        endpoint: Host and port.
        secret: Ranks prove to it that they know this.
    """

    endpoint: tuple[str, int]
    secret: bytes


class _Port(NamedTuple):
    """Where a rank listens at one interface.

    Attributes:
        interface: As AFFLUX_INTERFACE names it; empty if that is not set.
        host, port: The endpoint.
        error: Why there is none; empty if there is.
    """

    interface: str
    host: str = ""
    port: int = 0
    error: str = ""


def join_streams(
    exchange: Exchange,
    rank: int,
    group: StreamsGroup,
    settings: Settings,
    aggregator: Aggregator | None = None,
    patience_s: float | None = None,
) -> Streams:
    """Connect with the other ranks of the own mesh. Collective in the whole group.

    Args:
        exchange: The group's.
        rank: Own.
        group: The group.
        settings: Own.
        aggregator: The one to which the ranks connect, too; None for none.
        patience_s: How long the ranks wait for one another in each step; None: as long as what is
            done there may take.

    Returns:
        The own ones.

    Raises:
        StepFailed: A rank has no address for others, no network has all connections, or a rank
            cannot connect with the aggregator; at every rank.
        RendezvousError: Ranks did not come.
    """
    joining = _Joining(exchange, rank, group, settings, patience_s)
    try:
        joining.join(aggregator is not None)
        if aggregator is not None:
            joining.join_aggregator(aggregator)
        lanes = joining.lanes()
        ucx = joining.join_ucx(lanes) if joining.takes_ucx else None
        joining.hand_over()
        return Streams(lanes, joining.threads, joining.one_hop, ucx)
    finally:
        joining.close()


class _Joining:
    """One rank's way to its streams."""

    def __init__(
        self,
        exchange: Exchange,
        rank: int,
        group: StreamsGroup,
        settings: Settings,
        patience_s: float | None = None,
    ) -> None:
        self._exchange, self._rank, self._group = exchange, rank, group
        self._settings = settings
        self._patience_s = patience_s
        self._members = sorted(each for mesh in group.meshes for each in mesh)
        self._mesh: Sequence[int] = next((mesh for mesh in group.meshes if rank in mesh), ())
        self._listeners: dict[int, Listener] = {}
        self._ports: dict[int, list[_Port]] = {}
        self._streams: dict[int, list[list[socket.socket]]] = {}
        self._used: list[int] = []  # networks
        self._to_aggregator: list[socket.socket] = []
        self.threads = 1
        self.one_hop = 0
        self.takes_ucx = False

    def join(self, aggregated: bool) -> None:
        """Connect with the other ranks, and choose what carries the streams."""
        members, connect_s = self._members, self._settings.connect_timeout_s
        published = self._exchange.share(
            "port", members, self._listen, self._patience_s or connect_s
        )
        self._ports = {
            rank: [_Port(*each) for each in found["ports"]]
            for rank, found in zip(members, published, strict=True)
        }
        self.threads = min(found["threads"] for found in published)
        ranks = {
            rank: Lacks(*found["lacks"]) if "lacks" in found else _SILENT
            for rank, found in zip(members, published, strict=True)
        }
        self.takes_ucx = takes_ucx(self._settings.carrier, ranks, aggregated)
        networks = range(max(map(len, self._ports.values())))
        reasons = {number: why for number in networks if (why := self._incomplete(number))}

        def connect() -> dict[str, Any]:
            failed = {
                str(number): why
                for number in networks
                if number not in reasons and (why := self._connect(number))
            }
            links = [tcp for lane in self._streams.values() for each in lane for tcp in each]
            address = next(port.host for port in self._ports[self._rank] if port.host)
            return {"failed": failed, "one_hop": one_hop_bytes(links, address)}

        patience_s = self._patience_s or connect_s * len(networks) + _PATIENCE_S
        connected = self._exchange.share("streams", members, connect, patience_s)
        self.one_hop = max(each["one_hop"] for each in connected)
        # Those who have waited in vain know less.
        for in_vain in (False, True):
            for each in connected:
                for number, (waited, why) in each["failed"].items():
                    if waited is in_vain:
                        reasons.setdefault(int(number), why)
        self._judge(reasons, len(networks))
        if not self._mesh:
            return
        self._used = [number for number in networks if number not in reasons]
        hosts = ", ".join(self._ports[self._rank][number].host for number in self._used)
        _log.info("rank %d: streams from %s to %d ranks", self._rank, hosts, len(self._mesh) - 1)

    def join_aggregator(self, aggregator: Aggregator) -> None:
        """Connect with the aggregator, by the networks that are used."""

        def connect() -> None:
            if not self._mesh:
                return
            if len(self._mesh) > AGGREGATED_RANKS:
                raise OSError(
                    f"an aggregator of streams sums for at most {AGGREGATED_RANKS} ranks, or hosts "
                    f"with several, not {len(self._mesh)}"
                )
            # Unless interfaces are named, the way to the aggregator may begin elsewhere.
            ports = [self._ports[self._rank][number] for number in self._used]
            own = [port.host if port.interface else "" for port in ports] * self.threads
            here = next(ranks for ranks in self._group.hosts if self._rank in ranks)
            by_host = len(self._mesh) < sum(map(len, self._group.hosts))
            member = Member(
                aggregator.secret,
                f"{self._group.name}/aggregator/{self._mesh[0]}",
                list(self._mesh).index(self._rank),
                len(self._mesh),
                len(own),
                self._rank,
                len(here) if by_host else 1,
            )
            self._to_aggregator = connect_aggregator(
                aggregator.endpoint, member, own, self._settings.connect_timeout_s
            )

        patience_s = self._patience_s or self._settings.connect_timeout_s + _PATIENCE_S
        self._exchange.share("aggregator", self._members, connect, patience_s)

    def join_ucx(self, lanes: list[list[socket.socket | None]]) -> _native.UcxLanes | None:
        """Let UCX carry these lanes. Collective."""
        patience_s = self._patience_s or self._settings.connect_timeout_s + _PATIENCE_S
        return connect_ucx(self._exchange, self._rank, self._members, self._mesh, lanes, patience_s)

    def lanes(self) -> list[list[socket.socket | None]]:
        """Return the sockets by lane."""
        lanes = [self._streams[number] for number in self._used]
        by_lane = [
            [each[link] if each else None for each in lane]
            for link in range(self.threads)
            for lane in lanes
        ]
        for lane, last in zip(by_lane, self._to_aggregator, strict=False):
            lane.append(last)
        return by_lane

    def hand_over(self) -> None:
        """Leave the sockets that are used to the caller."""
        self._to_aggregator = []
        for number in self._used:
            del self._streams[number]

    def close(self) -> None:
        """Close what no worker has."""
        for tcp in self._to_aggregator:
            tcp.close()
        for listener in self._listeners.values():
            listener.close()
        for lane in self._streams.values():
            for each in lane:
                for tcp in each:
                    tcp.close()

    def _listen(self) -> dict[str, Any]:
        """Open a port at each of the own interfaces; return what others have to know."""
        ports: list[_Port] = []
        wanted = self._settings.interface or ()
        for number, interface in enumerate(wanted or ("",)):
            try:
                address = address_of_interface(interface) if interface else self._find_address()
                twin = next((port for port in ports if port.host == address), None)
                if twin is not None:
                    raise OSError(f"it has the address {address}, as {twin.interface}")
                self._listeners[number] = Listener(address)
            except OSError as error:
                if len(wanted) <= 1:
                    raise
                ports.append(_Port(interface, error=str(error)))
            else:
                ports.append(_Port(interface, *self._listeners[number].endpoint))
        if not self._listeners:
            raise OSError("; ".join(port.error for port in ports))
        threads = self._settings.threads
        if threads is None:
            here = next(ranks for ranks in self._group.hosts if self._rank in ranks)
            address = next(port.host for port in ports if port.host)
            threads = thread_count(address, len(here))
        return {"ports": ports, "threads": threads, "lacks": lacks(self._settings)}

    def _find_address(self) -> str:
        """Return the address of this host that others reach, where no interface is named."""
        elsewhere = [
            each
            for ranks in self._group.hosts
            if self._rank not in ranks
            for each in ranks
            if each in self._members
        ]
        if not elsewhere:
            return own_address(None, self._group.master)

        def others() -> Iterator[str]:
            # On the host of the store's server: by the route to another.
            for each in elsewhere:
                try:
                    (found,) = self._exchange.parts(
                        "port", [each], self._settings.connect_timeout_s
                    )
                except RendezvousError:
                    return
                yield next(host for _, host, _, _ in found["ports"] if host)

        return address_among(None, self._group.master, others)

    def _incomplete(self, network: int) -> str:
        """Return why a network is not tried: a rank that does not have it; empty if all have."""
        first = self._members[0]
        for rank, ports in self._ports.items():
            if network >= len(ports):
                return f"rank {rank} offers only {len(ports)} of the interfaces"
            if ports[network].error:
                return f"rank {rank}: {ports[network].error}"
            if is_ipv6(ports[network].host) != is_ipv6(self._ports[first][network].host):
                return (
                    f"rank {first} at {self._ports[first][network].host} and rank {rank} at "
                    f"{ports[network].host} have addresses of different families; "
                    "AFFLUX_INTERFACE may name others"
                )
        return ""

    def _connect(self, network: int) -> tuple[bool, str] | None:
        """Connect with all others in a network; return why not, and whether others did not come."""
        ports = [self._ports[rank][network] for rank in self._mesh]
        endpoints = [(port.host, port.port) for port in ports]
        name = f"{self._group.name}/{network}/{self._mesh[0]}"
        try:
            self._streams[network] = connect_mesh(
                self._listeners[network], list(self._mesh).index(self._rank), endpoints,
                self._group.secret, name, self.threads, self._settings.connect_timeout_s,
                self._mesh,
            )  # fmt: skip
        except (AffluxError, OSError) as error:
            return isinstance(error, RanksMissing), f"rank {self._rank}: {error}"
        return None

    def _judge(self, reasons: dict[int, str], networks: int) -> None:
        """Go on with what is left: with one warning, or with an error if it is nothing."""
        texts = [f"{self._label(number)}: {why}" for number, why in sorted(reasons.items())]
        if len(reasons) == networks:
            raise StepFailed("; ".join(texts if networks > 1 else reasons.values()))
        if reasons and self._rank == 0:
            used = [number for number in range(networks) if number not in reasons]
            _warn_of_less(", ".join(map(self._label, used)), "; ".join(texts))

    def _label(self, network: int) -> str:
        """Return the interface's name, as the first rank has it that has the network."""
        return next(
            ports[network].interface for ports in self._ports.values() if network < len(ports)
        )


@functools.cache
def _warn_of_less(used: str, reasons: str) -> None:
    """Warn that not all interfaces are used; once, not for each group."""
    _log.warning(
        "of the interfaces in AFFLUX_INTERFACE only %s can be used by all ranks: %s", used, reasons
    )
