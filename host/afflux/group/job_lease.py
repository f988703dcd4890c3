"""The jobs of a group at aggregators that AFFLUX_AGGREGATOR names, as rank 0 holds them."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import replace

from torch._C._distributed_c10d import Store

from afflux.group import launched_aggregator
from afflux.group.exchange import Introduction
from afflux.group.host_address import default_address, is_loopback, own_address
from afflux.group.settings import Settings
from afflux.group.torch_store import master_of
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

    def get(self, everyone: list[Introduction], units: Sequence[Sequence[int]]) -> str:
        """Make the jobs, and return the tickets of their aggregators. Rank 0.

        Args:
            everyone: The introductions of all ranks.
            units: The ranks that each worker sends for; in a tree each is one rank.
        """
        settings = self._settings
        url = settings.aggregator
        addresses = url.addresses
        if url.embedded:
            master = master_of(self._store) or os.environ.get("MASTER_ADDR", _LOOPBACK)
            one_host = len({each.host for each in everyone}) == 1
            host = _LOOPBACK if one_host else own_address(settings.interface, master)
            if not one_host and is_loopback(host):
                host = default_address()
            self._started = launched_aggregator.acquire(url, host, settings.start_timeout_s)
            addresses = (self._started.address,)
        wish = min(each.lanes for each in everyone), settings.slots
        timeout_s = settings.connect_timeout_s
        own = self._started.secret if self._started is not None else ""
        secret = secret_of_text(own) if own else settings.control_secret()
        if url.parent is not None:
            leaves = [(each.url.host, each.url.port) for each in everyone]
            self._lease = create_tree(url.parent, leaves, *wish, timeout_s, secret)
        else:
            self._lease = create_jobs(addresses, len(units), *wish, timeout_s, secret)
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
        """Return that the engine has ended, if this process has started it."""
        if self._started is None or self._started.runs():
            return None
        return f"the engine of {self._settings.aggregator} has ended"

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
