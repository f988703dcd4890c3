"""How a new group gets its reducers: over memory that its ranks share, or over an aggregator.

AFFLUX_AGGREGATOR   ranks that can share memory   ranks that cannot
auto                shared memory                 Gloo
shm://              shared memory                 an error
all others          the aggregator                the aggregator
"""

import functools
import json
import logging
import os
from typing import Any, NamedTuple

from torch._C._distributed_c10d import Store

from afflux.group import launched_aggregator
from afflux.group.aggregator_url import AggregatorUrl, lanes_to, local_address_towards
from afflux.group.exchange import (
    Exchange,
    Introduction,
    RendezvousError,
    check_agreement,
    host_identity,
)
from afflux.group.gloo_reducer import GlooReducer
from afflux.group.meeting import Meeting
from afflux.group.membership import Membership
from afflux.group.reducer import JobReducer, Reducer
from afflux.group.settings import Settings
from afflux.group.shared_memory import claim_memory, offer_memory
from afflux.group.shared_reducer import SharedMemoryReducer
from afflux.group.torch_store import GroupStore, master_of
from afflux_drivers.control.client import JobLease, create_job
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.control.tree import TreeLease, create_tree
from afflux_drivers.errors import AffluxError
from afflux_drivers.shared.worker import SharedWorker
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["Met", "decline", "meet"]

_log = logging.getLogger("afflux")

_LOOPBACK = "127.0.0.1"

_DECLINE_S = 5.0
"""A rank that cannot take part lets the others know, but does not wait for them long."""

_UNKNOWN_MTU = 1500


class Met(NamedTuple):
    """What the ranks of a new group have agreed on.

    Attributes:
        reducer: Of this rank.
        keys: The group's, in torch's store. To be released with the group.
    """

    reducer: Reducer[Any]
    keys: GroupStore


def meet(membership: Membership, settings: Settings) -> Met:
    """Meet the other ranks of a new group, and make the reducer of this rank. Collective.

    Args:
        membership: Of this rank. Its store is used by no other thread meanwhile.
        settings: This rank's; the ranks' aggregators must be the same, or their parents.

    Raises:
        AffluxError: At every rank, for the same reason.
    """
    try:
        introduction = _introduction(settings, membership.adapter)
    except (OSError, ValueError) as error:
        reason = f"AFFLUX_AGGREGATOR={settings.aggregator}: {error}"
        decline(membership, reason)
        raise RendezvousError(f"rank {membership.rank}: {reason}") from error
    meeting = _meeting(membership)
    meeting.introduce(introduction)
    return _follow(meeting, introduction, membership, settings)


def _meeting(membership: Membership) -> Meeting:
    limit_s = membership.timeout.total_seconds()
    return Meeting(membership.store, membership.rank, membership.size, limit_s)


def decline(membership: Membership, reason: str) -> None:
    """Make the group fail at the other ranks because this one cannot take part. Collective."""
    meeting = _meeting(membership)
    meeting.hurry(_DECLINE_S)
    introduction = Introduction(
        AggregatorUrl("auto"), host_identity(), wire.LANES_MAX, reason, membership.adapter
    )
    meeting.introduce(introduction)
    try:
        _follow(meeting, introduction, membership, Settings()).keys.release()
    except (AffluxError, RuntimeError):
        _log.debug("declined", exc_info=True)


def _follow(
    meeting: Meeting,
    introduction: Introduction,
    membership: Membership,
    settings: Settings,
) -> Met:
    """Share memory if all can, or else do what the ranks agree on once the roll is called."""
    rank, size, timeout = membership.rank, membership.size, membership.timeout
    reason = ""
    everyone: list[Introduction] = []
    keys: GroupStore | None = None
    try:
        if rank == 0:
            keys = meeting.keys()
            if introduction.url.may_share and not introduction.error:
                worker, reason = offer_memory(meeting, keys, introduction, size)
                if worker is not None:
                    return _shared(worker, keys, settings)
            everyone = meeting.call_roll(keys)
        else:
            ticket = meeting.next_ticket()
            while "segment" in ticket:
                claimed = claim_memory(ticket, meeting, introduction, rank, size)
                if claimed is not None:
                    return _shared(*claimed, settings)
                ticket = meeting.next_ticket()
            keys = meeting.keys()
            meeting.confirm(keys)
        exchange = Exchange(keys.store, rank, size, timeout.total_seconds())
        return Met(_reducer(exchange, keys, everyone, reason, rank, size, settings), keys)
    except BaseException:
        if keys is not None:
            keys.release()
        raise


def _shared(worker: SharedWorker, keys: GroupStore, settings: Settings) -> Met:
    return Met(SharedMemoryReducer(worker, settings.aggregator), keys)


def _reducer(
    exchange: Exchange,
    keys: GroupStore,
    everyone: list[Introduction],
    reason: str,
    rank: int,
    size: int,
    settings: Settings,
) -> Reducer[Any]:
    """Return the reducer of ranks that share no memory.

    Args:
        exchange: The group's.
        keys: The group's.
        everyone: The introductions of all ranks, at rank 0.
        reason: Why memory is not shared, at rank 0.
        rank: Own.
        size: Ranks of the group.
        settings: Own.
    """
    lease = _Lease(keys.store, size, settings)

    def first_ticket() -> str:
        check_agreement(everyone)
        url = settings.aggregator
        if url.scheme == "shm":
            raise RendezvousError(f"AFFLUX_AGGREGATOR={url}, but memory is not shared: {reason}")
        if url.scheme == "auto":
            return json.dumps({"gloo": _first_apart(everyone) or reason})
        return json.dumps({"job": lease.get(everyone)})

    try:
        if rank == 0:
            ticket = json.loads(exchange.publish(first_ticket))
        else:
            patience_s = settings.start_timeout_s + settings.connect_timeout_s
            ticket = json.loads(exchange.ticket(patience_s))
        if "gloo" in ticket:
            if rank == 0:
                _warn_of_gloo(ticket["gloo"])
            return GlooReducer(settings.aggregator)
        return _join(exchange, rank, settings, _own(ticket["job"], rank), lease)
    except BaseException:
        lease.give_back()
        raise


def _first_apart(everyone: list[Introduction]) -> str:
    """Say which rank is out of reach: the same one for equal groups, whoever came first."""
    for rank, each in enumerate(everyone):
        if each.host != everyone[0].host:
            return f"rank {rank} is on another host or in another network namespace than rank 0"
    return ""


@functools.cache
def _warn_of_gloo(reason: str) -> None:
    """Warn that the user gets no more than Gloo; once, not for each group."""
    _log.warning(
        "the ranks of a group cannot share memory, so its collectives go through Gloo: %s. For "
        "ranks of several hosts, start `afflux serve` on one and set AFFLUX_AGGREGATOR=udp://host",
        reason,
    )


def _join(
    exchange: Exchange, rank: int, settings: Settings, ticket: JobTicket, lease: "_Lease"
) -> JobReducer:
    worker: Worker | None = None

    def join() -> None:
        nonlocal worker
        worker = Worker(
            [ticket], rank, loss=_loss(settings, rank), peer_timeout_s=settings.peer_timeout_s
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
        url = settings.aggregator
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


def _introduction(settings: Settings, adapter: str) -> Introduction:
    """Introduce this rank.

    Raises:
        OSError: The aggregator's name does not resolve, or there is no route to it.
        ValueError: Not even a packet of one block fits the route's MTU.
    """
    return Introduction(settings.aggregator, host_identity(), _lanes(settings), adapter=adapter)


def _lanes(settings: Settings) -> int:
    url = settings.aggregator
    if settings.lanes is not None:
        return settings.lanes
    if url.may_share:
        return wire.LANES_MAX
    if not url.embedded:
        return lanes_to(url.host, url.port)
    # Rank 0 starts it, most likely on the host that torchrun calls master; a packet to the own
    # host goes through the loopback interface, by whichever name.
    try:
        return lanes_to(os.environ.get("MASTER_ADDR", _LOOPBACK), wire.PORT)
    except OSError:
        # The ranks have met without that name.
        return wire.lanes_for_mtu(_UNKNOWN_MTU)
