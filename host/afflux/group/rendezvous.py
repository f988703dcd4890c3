"""How a new group gets its reducers: over memory that its ranks share, or over an aggregator."""

import json
import logging
import os
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

from afflux.group import launched_aggregator
from afflux.group.aggregator_url import AggregatorUrl, lanes_to, local_address_towards
from afflux.group.exchange import Exchange, Introduction, RendezvousError, host_identity
from afflux.group.reducer import JobReducer, Reducer
from afflux.group.settings import Settings
from afflux.group.shared_memory import Sharing, why_not_shared
from afflux.group.torch_store import master_of
from afflux_drivers.control.client import JobLease, create_job
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.control.tree import TreeLease, create_tree
from afflux_drivers.errors import AffluxError
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["make_reducer"]

_log = logging.getLogger("afflux")

_LOOPBACK = "127.0.0.1"


def make_reducer(
    store: Store, rank: int, size: int, settings: Settings, timeout: timedelta
) -> Reducer[Any]:
    """Make the reducer of this rank of a new group, with the other ranks. Collective.

    Args:
        store: This group's store; used by no other thread meanwhile.
        rank: Own rank in the group.
        size: Ranks of the group.
        settings: This rank's; the ranks' aggregators must be the same, or their parents.
        timeout: The group's timeout, for ranks that do not come.

    Raises:
        AffluxError: At every rank, for the same reason.
    """
    exchange = Exchange(store, rank, size, timeout.total_seconds())
    try:
        introduction = _introduction(settings)
    except (OSError, ValueError) as error:
        reason = f"AFFLUX_AGGREGATOR={settings.aggregator}: {error}"
        exchange.decline(reason)
        raise RendezvousError(f"rank {rank}: {reason}") from error
    exchange.introduce(introduction)
    lease = _Lease(store, size, settings)
    sharing = Sharing(exchange, rank, size)

    def first_ticket() -> str:
        everyone = exchange.introductions()
        if settings.aggregator.may_share:
            reason = why_not_shared(everyone)
            if not reason:
                try:
                    return json.dumps({"segment": sharing.offer()})
                except OSError as error:
                    reason = f"rank 0: {error}"
            _no_memory(settings.aggregator, reason)
        return json.dumps({"job": lease.get(everyone)})

    patience_s = settings.start_timeout_s + settings.connect_timeout_s
    try:
        if rank == 0:
            ticket = json.loads(exchange.publish(first_ticket))
        else:
            ticket = json.loads(exchange.ticket(patience_s))
        if "segment" in ticket:
            shared, refusals = sharing.enter(ticket["segment"], settings)
            if shared is not None:
                return shared
            _no_memory(settings.aggregator, "; ".join(refusals))
            if rank == 0:
                job = exchange.publish(lambda: lease.get(exchange.introductions()), "fallback")
            else:
                job = exchange.ticket(patience_s, "fallback")
        else:
            job = ticket["job"]
        return _join(exchange, rank, settings, _own(job, rank), lease)
    except BaseException:
        lease.give_back()
        raise


def _no_memory(url: AggregatorUrl, reason: str) -> None:
    """Log that sums go elsewhere, or raise if shm:// was asked for; every rank decides alike."""
    if url.scheme == "shm":
        raise RendezvousError(f"AFFLUX_AGGREGATOR={url}, but memory is not shared: {reason}")
    _log.info("sums go through a software engine, not through shared memory: %s", reason)


def _join(
    exchange: Exchange, rank: int, settings: Settings, ticket: JobTicket, lease: "_Lease"
) -> JobReducer:
    worker: Worker | None = None

    def join() -> None:
        nonlocal worker
        worker = Worker(
            ticket, rank, loss=_loss(settings, rank), peer_timeout_s=settings.peer_timeout_s
        )
        worker.join(settings.connect_timeout_s)

    try:
        exchange.join(join)
    except BaseException:
        if worker is not None:
            worker.close()
        raise
    if worker is None:
        raise RendezvousError(f"rank {rank} has no worker")
    return JobReducer(worker, ticket, settings.aggregator, lease.give_back)


class _Lease:
    """The group's job, as rank 0 holds it, and the engine if this process has started it.

    Args:
        store: The group's store.
        size: Ranks of the group.
        settings: Own.
    """

    def __init__(self, store: Store, size: int, settings: Settings) -> None:
        self._store = store
        self._size = size
        self._settings = settings
        self._lease: JobLease | TreeLease | None = None
        self._started: tuple[AggregatorUrl, str] | None = None

    def get(self, everyone: list[Introduction]) -> str:
        """Make the job, and return the tickets of its aggregators. Rank 0."""
        settings = self._settings
        url = settings.aggregator.without_sharing
        if url.embedded:
            master = master_of(self._store) or os.environ.get("MASTER_ADDR", _LOOPBACK)
            one_host = len({each.host for each in everyone}) == 1
            host = _LOOPBACK if one_host else local_address_towards(master)
            address = launched_aggregator.acquire(url, host, settings.start_timeout_s)
            self._started = (url, host)
        else:
            address = (url.host, url.port)
        wish = min(each.lanes for each in everyone), settings.slots
        if url.parent is not None:
            leaves = [(each.url.host, each.url.port) for each in everyone]
            tree = create_tree(url.parent, leaves, *wish, settings.connect_timeout_s)
            self._lease = tree
            return json.dumps([ticket.to_json() for ticket in tree.tickets])
        job = create_job(address, self._size, *wish, settings.connect_timeout_s)
        self._lease = job
        return json.dumps([job.ticket.to_json()])

    def give_back(self) -> None:
        """End the job, and the engine if no other group uses it."""
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                lease.close()
            except (AffluxError, OSError):
                # A dead aggregator has no job left to close.
                _log.debug("the job was not closed", exc_info=True)
        started, self._started = self._started, None
        if started is not None:
            launched_aggregator.release(*started)


def _own(text: str, rank: int) -> JobTicket:
    """Return the ticket of this rank's aggregator, among those that rank 0 has published."""
    for each in map(JobTicket.from_json, json.loads(text)):
        if rank in (each.members or range(each.workers)):
            return each
    raise RendezvousError(f"rank 0 has no ticket for rank {rank}")


def _loss(settings: Settings, rank: int) -> LossSwitch | None:
    if settings.test_loss == 0:
        return None
    return LossSwitch(settings.test_loss, settings.test_seed, rank)


def _introduction(settings: Settings) -> Introduction:
    """Introduce this rank.

    Raises:
        OSError: The aggregator's name does not resolve, or there is no route to it.
        ValueError: Not even a packet of one block fits the route's MTU.
    """
    url = settings.aggregator
    if settings.lanes is not None:
        lanes = settings.lanes
    elif url.scheme == "shm":
        lanes = wire.LANES_MAX
    elif url.embedded:
        # Rank 0 starts it, most likely on the host that torchrun calls master; a packet to the own
        # host goes through the loopback interface, by whichever name.
        lanes = lanes_to(os.environ.get("MASTER_ADDR", _LOOPBACK), wire.PORT)
    else:
        lanes = lanes_to(url.host, url.port)
    return Introduction(url, host_identity(), lanes)
