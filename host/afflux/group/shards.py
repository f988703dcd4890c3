"""Colocated shards: a software aggregator in each host of a group, which share the columns.

Of each host the least rank is the *leader*. These are the steps, each of which every rank follows
in the store; a leader that cannot do its part says why, and then no rank goes on:

    leaders   publish the address of their host                        address/<r>
    leaders   probe the paths, publish what they have heard            paths/<r>
    leaders   start the shard of their host, publish their job there   shard<n>/<r>

The last one is repeated with less, n = 0, 1, …, until all have granted the same lanes and slots.
"""

import contextlib
import logging
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from afflux.group import launched_aggregator
from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.exchange import Exchange, RendezvousError, StepFailed
from afflux.group.host_address import default_address, is_loopback, own_address
from afflux.group.path_probe import PathProbe, Paths
from afflux.group.settings import Settings
from afflux_drivers.addresses import authority, is_ipv6
from afflux_drivers.control.client import JobLease, create_job
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError
from afflux_hdl.contract import wire

__all__ = ["PROBE_S", "START_S", "Shards", "ShardsPlan"]

_log = logging.getLogger("afflux")

_SOFT = AggregatorUrl("soft")
_TRIES = 4
_ROLE = "shard"

PROBE_S = 1.5
"""All paths are probed at once; with what the store takes this stays below two seconds."""

START_S = 30.0
"""A software aggregator starts in half a second, unless its host is busy."""


class ShardsPlan(NamedTuple):
    """What rank 0 has decided about a group's shards.

    Attributes:
        hosts: The ranks of each host, in order of the leaders.
        key: 16 bytes in hexadecimal, for the probes.
        lanes: Most lanes that all ranks want.
        slots: Slots that rank 0 wants.
    """

    hosts: list[list[int]]
    key: str
    lanes: int
    slots: int


class _Host(NamedTuple):
    name: str
    address: str
    port: int


class Shards:
    """One rank's part in the shards of a group.

    Args:
        exchange: The group's.
        rank: Own rank.
        plan: Rank 0's, the same at all ranks.
        units: The ranks that each worker sends for.
        settings: Own.
        master: Name or address of the store's server, which is on another host perhaps.
    """

    def __init__(
        self,
        exchange: Exchange,
        rank: int,
        plan: ShardsPlan,
        units: Sequence[Sequence[int]],
        settings: Settings,
        master: str,
    ) -> None:
        self._exchange = exchange
        self._rank = rank
        self._plan = plan
        self._units = units
        self._settings = settings
        self._master = master
        self._leaders = [ranks[0] for ranks in plan.hosts]
        self._own = next(n for n, ranks in enumerate(plan.hosts) if rank in ranks)
        self._hosts: list[_Host] = []
        self._leases: list[JobLease] = []
        self._launched: launched_aggregator.Launched | None = None
        self._names: dict[str, str] = {}

    @property
    def holds(self) -> bool:
        """Whether this rank is its host's leader, upon whose process the others depend."""
        return self._rank in self._leaders

    def named(self, text: str) -> str:
        """Return a message in which a shard's address is followed by whose it is."""
        for peer, name in self._names.items():
            text = text.replace(peer, f"{peer} ({name})", 1)
        return text

    def trouble(self) -> str | None:
        """Return that the shard of this host has ended, at its leader."""
        if self._launched is not None and not self._launched.runs():
            return f"the shard of rank {self._name(self._rank)} has ended"
        return None

    def set_up(self) -> list[JobTicket]:
        """Return the jobs that this rank is to join, one for each shard. Collective.

        Raises:
            StepFailed: A leader could not do its part, or a path carries nothing; at every rank.
            RendezvousError: Leaders did not come.
        """
        started = time.monotonic()
        wish = min(self._plan.lanes, self._lanes_of_paths()), self._plan.slots
        probed = time.monotonic()
        for attempt in range(_TRIES):
            tickets, granted = self._create(attempt, wish)
            if granted == wish:
                _log.debug(
                    "shards: paths probed in %.2f s, started in %.2f s",
                    probed - started,
                    time.monotonic() - probed,
                )
                return tickets
            self._close_jobs()
            wish = granted
        raise StepFailed(f"the shards grant ever less: now {wish[0]} lanes and {wish[1]} slots")

    def give_back(self) -> None:
        """End what this rank has started, once no other rank needs it any more."""
        self._close_jobs()
        launched, self._launched = self._launched, None
        if launched is not None:
            launched_aggregator.release(launched)

    def _close_jobs(self) -> None:
        for lease in self._leases:
            # A dead shard has no job left to close.
            with contextlib.suppress(AffluxError, OSError):
                lease.close()
        self._leases.clear()

    def _lanes_of_paths(self) -> int:
        """Find out the hosts' addresses, and return the most lanes that all paths carry."""
        exchange, leaders = self._exchange, self._leaders
        probe: PathProbe | None = None
        try:
            if self.holds:

                def bind() -> dict[str, Any]:
                    nonlocal probe
                    probe = PathProbe(
                        self._find_address(), bytes.fromhex(self._plan.key), self._own
                    )
                    address, port = probe.address
                    return _Host(socket.gethostname(), address, port)._asdict()

                exchange.publish_part("address", bind)
            found = exchange.parts("address", leaders, self._settings.connect_timeout_s)
            self._hosts = [_Host(**each) for each in found]
            self._check_families()
            if probe is not None:
                self._run(probe)
            patience_s = PROBE_S + self._settings.connect_timeout_s
            heard = exchange.parts("paths", leaders, patience_s, self._name)
        finally:
            if probe is not None:
                probe.close()
        self._check(heard)
        carried = [lanes for row in heard for lanes in row.values()]
        return min(carried, default=wire.LANES_MAX)

    def _find_address(self) -> str:
        """Return this host's address, for its leader."""
        wanted, hosts = self._settings.interface, self._plan.hosts
        found = own_address(wanted, self._master)
        if wanted is not None or len(hosts) == 1 or not is_loopback(found):
            return found
        # On the host of the store's server: by the route to another.
        if self._own == 0:
            with contextlib.suppress(RendezvousError):
                patience_s = self._settings.connect_timeout_s
                for each in self._exchange.parts("address", self._leaders[1:], patience_s):
                    found = own_address(None, each["address"])
                    if not is_loopback(found):
                        return found
        found = default_address()
        if not is_loopback(found):
            return found
        raise OSError(
            f"{socket.gethostname()} has no address that leads to other hosts, only {found}; "
            "AFFLUX_INTERFACE names one"
        )

    def _check_families(self) -> None:
        """Check that no host has chosen an address that others cannot send to. At every rank."""
        first = self._leaders[0]
        for leader, host in zip(self._leaders, self._hosts, strict=True):
            if is_ipv6(host.address) != is_ipv6(self._hosts[0].address):
                raise StepFailed(
                    f"rank {self._name(first)} and rank {self._name(leader)} have addresses of "
                    "different families, so no packet passes between them; AFFLUX_INTERFACE may "
                    "name others"
                )

    def _run(self, probe: PathProbe) -> None:
        exchange, others = self._exchange, [rank for rank in self._leaders if rank != self._rank]
        published = False

        def heard(paths: Paths) -> None:
            nonlocal published
            published = True
            exchange.publish_part("paths", lambda: paths)

        peers = {
            number: (host.address, host.port)
            for number, host in enumerate(self._hosts)
            if number != self._own
        }
        try:
            probe.run(peers, heard, lambda: exchange.have_parts("paths", others), PROBE_S)
        except Exception as error:
            reason = error
            if published:
                # The others have what they need of this host.
                _log.debug("the probes ended early", exc_info=True)
                return

            def failed() -> None:
                raise reason

            exchange.publish_part("paths", failed)

    def _check(self, heard: Sequence[dict[str, int]]) -> None:
        """Check what each host has heard from each other: nothing from one is an error."""
        silent = [
            (int(number), listener)
            for listener, row in enumerate(heard)
            for number, lanes in row.items()
            if lanes == 0
        ]
        if not silent:
            return
        sender, listener = (self._name(self._leaders[each]) for each in silent[0])
        more = f", nor of {len(silent) - 1} more pairs" if len(silent) > 1 else ""
        raise StepFailed(
            f"no UDP packet of data size from rank {sender} reaches rank {listener} in "
            f"{PROBE_S:g} s{more}"
        )

    def _name(self, rank: int) -> str:
        """Name a leader with its host."""
        host = self._hosts[self._leaders.index(rank)]
        return f"{rank} on {host.name} ({host.address})"

    def _note(self, tickets: Sequence[JobTicket]) -> None:
        """Remember whose shard is at these addresses."""
        for leader, host, ticket in zip(self._leaders, self._hosts, tickets, strict=True):
            peer = authority(ticket.host, ticket.port)
            self._names[peer] = f"the shard of rank {leader} on {host.name}"

    def _create(
        self, attempt: int, wish: tuple[int, int]
    ) -> tuple[list[JobTicket], tuple[int, int]]:
        """Create all jobs; return this rank's tickets, and the least lanes and slots granted."""
        timeout_s = self._settings.connect_timeout_s

        def start_shard() -> str:
            lease = create_job(self._launch(), len(self._units), *wish, timeout_s)
            self._leases.append(lease)
            return lease.ticket.of_units(self._units).to_json()

        patience_s = START_S + timeout_s
        step = f"shard{attempt}"
        texts = self._exchange.share(step, self._leaders, start_shard, patience_s, self._name)
        shards = [JobTicket.from_json(text) for text in texts]
        self._note(shards)
        return shards, (min(each.lanes for each in shards), min(each.slots for each in shards))

    def _launch(self) -> tuple[str, int]:
        """Return the address of this host's shard, which is started unless it runs."""
        host = self._hosts[self._own].address
        patience_s = min(self._settings.start_timeout_s, START_S)
        before = self._launched
        self._launched = launched_aggregator.acquire(_SOFT, host, patience_s, _ROLE)
        if before is not None:
            # The second try of this group.
            launched_aggregator.release(before)
        return self._launched.address
