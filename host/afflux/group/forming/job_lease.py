"""The jobs of a group at aggregators that AFFLUX_AGGREGATOR names, as rank 0 holds them."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import replace

from torch._C._distributed_c10d import Store

from afflux.group.forming import launched_aggregator
from afflux.group.forming.launched_aggregator import AggregatorNotStarted
from afflux.group.settings.host_address import default_address, is_loopback, own_address
from afflux.group.settings.variables import Settings
from afflux.group.store.introduction import Introduction
from afflux.group.store.keys import master_of
from afflux_drivers.addresses import authority
from afflux_drivers.control.client import describe
from afflux_drivers.control.secret import secret_of_text
from afflux_drivers.control.several import JobsLease, create_jobs
from afflux_drivers.control.tree import create_tree
from afflux_drivers.errors import AffluxError

__all__ = ["GroupLease"]

_log = logging.getLogger("afflux")

_LOOPBACK = "127.0.0.1"


class GroupLease:
    """The group's jobs, and the engine if this process has started it.

    Args:
        store: The group's store.
        settings: Own.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._lease: JobsLease | None = None
        self._started: launched_aggregator.Launched | None = None

    def boards(self) -> list[list[str | int]]:
        """Return host and port of each aggregator that is elsewhere than its control channel.

        Ranks have not come there on their way to the control channel. Rank 0.

        Raises:
            AffluxError: An aggregator does not answer.
        """
        url = self._settings.aggregator
        if url.embedded or url.parent is not None:
            return []
        secret = self._settings.control_secret()
        found = [describe(each, self._settings.connect_timeout_s, secret) for each in url.addresses]
        return [[str(each["host"]), int(each["port"])] for each in found if "host" in each]

    def get(self, lanes: int, units: Sequence[Sequence[int]], everyone: list[Introduction]) -> str:
        """Make the jobs, and return the tickets of their aggregators. Rank 0.

        Args:
            lanes: The most that the ways of all ranks to the aggregators carry.
            units: The ranks that each worker sends for; in a tree each is one rank.
            everyone: The introductions of all ranks.
        """
        settings = self._settings
        url = settings.aggregator
        addresses = url.addresses
        if url.embedded:
            master = master_of(self._store) or os.environ.get("MASTER_ADDR", _LOOPBACK)
            one_host = len({each.host for each in everyone}) == 1
            host = _LOOPBACK if one_host else own_address(settings.interface, master)
            if not one_host and url.scheme == "board":
                raise AggregatorNotStarted(
                    "board:// simulates a board at this host's loopback interface, and the ranks "
                    "are on several hosts"
                )
            if not one_host and is_loopback(host):
                host = default_address()
            self._started = launched_aggregator.acquire(url, host, settings.start_timeout_s)
            addresses = (self._started.address,)
        wish = lanes, settings.slots
        # An engine that this process has started ends with it anyway.
        lease_s = 0 if url.embedded else settings.lease_s
        timeout_s = settings.connect_timeout_s
        own = self._started.secret if self._started is not None else ""
        secret = secret_of_text(own) if own else settings.control_secret()
        if url.parent is not None:
            leaves = [(each.url.host, each.url.port) for each in everyone]
            self._lease = create_tree(url.parent, leaves, *wish, timeout_s, secret, lease_s)
        else:
            self._lease = create_jobs(addresses, len(units), *wish, timeout_s, secret, lease_s)
            tickets = [
                replace(ticket.of_units(units), secret=own) for ticket in self._lease.tickets
            ]
            return json.dumps([ticket.to_json() for ticket in tickets])
        return json.dumps([ticket.to_json() for ticket in self._lease.tickets])

    @property
    def holds(self) -> bool:
        """Whether this is rank 0, with which the jobs end."""
        return self._lease is not None

    def named(self, text: str) -> str:
        """Return the same: these aggregators have no names but their addresses."""
        return text

    def trouble(self) -> str | None:
        """Return that a job is over, or that the engine has ended that this process has started."""
        if self._lease is None:
            return None
        if self._started is not None and not self._started.runs():
            (ticket,) = self._lease.tickets
            where = authority(ticket.host, ticket.port)
            return (
                f"the engine of {self._settings.aggregator}, the aggregator at {where}, has ended"
            )
        return self._lease.lost

    def give_back(self) -> None:
        """End the jobs, and the engine if no other group uses it."""
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                lease.close()
            except (AffluxError, OSError):
                # A dead aggregator has no job left to close.
                _log.debug("the job was not closed", exc_info=True)
        started, self._started = self._started, None
        if started is not None:
            launched_aggregator.release(started)
