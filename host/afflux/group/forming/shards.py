"""Colocated shards: a software aggregator in each host of a group, which share the columns.

Of each host the least rank is the *leader*. These are the steps, each of which every rank follows
in the store; a leader that cannot do its part says why, and then no rank goes on:

    leaders   find the paths between the hosts                      `host_paths`
    leaders   start the shards of their host, publish their jobs    shard<n>/<r>

A host has a shard at each of its interfaces that all hosts can use. The last step is repeated with
less, n = 0, 1, …, until all have granted the same lanes and slots.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from afflux.group.forming import launched_aggregator
from afflux.group.forming.host_paths import HostPaths
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings
from afflux.group.store.exchange import Exchange, StepFailed
from afflux_drivers.addresses import authority
from afflux_drivers.control.client import JobLease, create_job
from afflux_drivers.control.secret import secret_of_text
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError

__all__ = ["START_S", "Shards"]

_log = logging.getLogger("afflux")

_SOFT = AggregatorUrl("soft")
_TRIES = 4
_ROLE = "shard"

START_S = 30.0
"""A software aggregator starts in half a second, unless its host is busy."""


class Shards:
    """One rank's part in the shards of a group.

    Args:
        exchange: The group's.
        rank: Own rank.
        hosts: The ranks of each host, in order of the leaders.
        key: 16 bytes in hexadecimal, for the probes.
        wish: Most lanes that all ranks want, and slots that rank 0 wants.
        units: The ranks that each worker sends for.
        settings: Own.
        master: Name or address of the store's server, which is on another host perhaps.
    """

    def __init__(
        self,
        exchange: Exchange,
        rank: int,
        hosts: list[list[int]],
        key: str,
        wish: tuple[int, int],
        units: Sequence[Sequence[int]],
        settings: Settings,
        master: str,
    ) -> None:
        self._exchange = exchange
        self._rank = rank
        self._wish = wish
        self._units = units
        self._settings = settings
        self._paths = HostPaths(exchange, rank, hosts, key, settings, master)
        self._leases: list[JobLease] = []
        self._launched: list[launched_aggregator.Launched] = []
        self._names: dict[str, str] = {}

    @property
    def holds(self) -> bool:
        """Whether this rank is its host's leader, upon whose process the others depend."""
        return self._rank in self._paths.leaders

    def named(self, text: str) -> str:
        """Return a message in which a shard's address is followed by whose it is."""
        for peer, name in self._names.items():
            text = text.replace(peer, f"{peer} ({name})", 1)
        return text

    def trouble(self) -> str | None:
        """Return that the shard of this host has ended, at its leader."""
        if all(each.runs() for each in self._launched):
            return None
        return f"the shard of rank {self._paths.name(self._rank)} has ended"

    def set_up(self) -> list[JobTicket]:
        """Return the jobs that this rank is to join, one for each shard. Collective.

        Raises:
            StepFailed: A leader could not do its part, or a path carries nothing; at every rank.
            RendezvousError: Leaders did not come.
        """
        started = time.monotonic()
        lanes, slots = self._wish
        wish = min(lanes, self._paths.find()), slots
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
        launched, self._launched = self._launched, []
        for each in launched:
            launched_aggregator.release(each)

    def _close_jobs(self) -> None:
        for lease in self._leases:
            # A dead shard has no job left to close.
            with contextlib.suppress(AffluxError, OSError):
                lease.close()
        self._leases.clear()

    def _create(
        self, attempt: int, wish: tuple[int, int]
    ) -> tuple[list[JobTicket], tuple[int, int]]:
        """Create all jobs; return this rank's tickets, and the least lanes and slots granted."""
        timeout_s = self._settings.connect_timeout_s

        def start_shards() -> list[str]:
            self._launch()
            for each in self._launched:
                secret = secret_of_text(each.secret)
                lease = create_job(each.address, len(self._units), *wish, timeout_s, secret=secret)
                self._leases.append(lease)
            return [
                replace(lease.ticket.of_units(self._units), secret=each.secret).to_json()
                for lease, each in zip(self._leases, self._launched, strict=True)
            ]

        # A leader starts one after the other.
        patience_s = (START_S + timeout_s) * len(self._paths.networks)
        step, leaders = f"shard{attempt}", self._paths.leaders
        texts = self._exchange.share(step, leaders, start_shards, patience_s, self._paths.name)
        of_hosts = [[JobTicket.from_json(text) for text in each] for each in texts]
        for leader, tickets in zip(leaders, of_hosts, strict=True):
            for each in tickets:
                # Errors name the address; their reader wants to know whose it is.
                peer = authority(each.host, each.port)
                name = f"the shard of rank {leader} on {self._paths.host_name(leader)}"
                self._names[peer] = name
        shards = _in_turns(of_hosts)
        return shards, (min(each.lanes for each in shards), min(each.slots for each in shards))

    def _launch(self) -> None:
        """Start this host's shards, unless they run."""
        patience_s = min(self._settings.start_timeout_s, START_S)
        before, self._launched = self._launched, []
        try:
            for network in self._paths.networks:
                host = self._paths.address(network)
                launched = launched_aggregator.acquire(_SOFT, host, patience_s, _ROLE)
                self._launched.append(launched)
        finally:
            # Those of the first try, if this is the second one of this group.
            for each in before:
                launched_aggregator.release(each)


def _in_turns(of_hosts: Sequence[Sequence[JobTicket]]) -> list[JobTicket]:
    """Put the shards of all hosts in order: the first few have all hosts, and all networks."""
    networks = len(of_hosts[0])
    return [
        tickets[(host + turn) % networks]
        for turn in range(networks)
        for host, tickets in enumerate(of_hosts)
    ]
