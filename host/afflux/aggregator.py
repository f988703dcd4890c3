"""A group's job: which aggregator, how its ranks get there, and how they leave again."""

import json
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

from torch._C._distributed_c10d import Store

from afflux import child
from afflux.location import Location, lanes_to, local_address_towards
from afflux.rendezvous import Introduction, Meeting, RendezvousError, host_identity
from afflux.settings import Settings
from afflux.stores import master_of
from afflux_drivers.control import JobLease, create_job
from afflux_drivers.errors import AffluxError
from afflux_drivers.loss import LossSwitch
from afflux_drivers.ticket import JobTicket
from afflux_drivers.tree import TreeLease, create_tree
from afflux_drivers.worker import Worker
from afflux_hdl import wire

__all__ = ["Membership", "enter"]

_log = logging.getLogger("afflux")

_LOOPBACK = "127.0.0.1"


@dataclass
class Membership:
    """One rank's part in a job.

    Attributes:
        worker: Joined, for the thread that carries out operations.
        ticket: The job.
        url: AFFLUX_AGGREGATOR as it was given.
    """

    worker: Worker
    ticket: JobTicket
    url: str
    _lease: JobLease | TreeLease | None = None
    _child: tuple[Location, str] | None = None

    def leave(self) -> None:
        """Give everything back. Rank 0 ends the job: all ranks must be done with it."""
        self.worker.close()
        _give_back(self._lease, self._child)
        self._lease = None
        self._child = None


def _give_back(lease: JobLease | TreeLease | None, started: tuple[Location, str] | None) -> None:
    if lease is not None:
        try:
            lease.close()
        except (AffluxError, OSError):
            # A dead aggregator has no job left to close.
            _log.debug("the job was not closed", exc_info=True)
    if started is not None:
        child.release(*started)


def enter(store: Store, rank: int, size: int, settings: Settings, timeout: timedelta) -> Membership:
    """Meet the other ranks of a new group at an aggregator. Collective over the group.

    Args:
        store: Of this group; used by no other thread meanwhile.
        rank: Own rank in the group.
        size: Ranks of the group.
        settings: Own; the ranks' aggregators must be the same, or their parents.
        timeout: Of the group, for ranks that do not come.

    Raises:
        AffluxError: At every rank, for the same reason.
    """
    meeting = Meeting(store, rank, size, timeout.total_seconds())
    meeting.introduce(_introduction(settings))
    location: Location | None = None
    lease: JobLease | TreeLease | None = None
    started: tuple[Location, str] | None = None

    def get_job() -> str:
        nonlocal location, lease, started
        everyone = meeting.introductions()
        location = Location.parse(settings.aggregator)
        if location.embedded:
            master = master_of(store) or os.environ.get("MASTER_ADDR", _LOOPBACK)
            one_host = len({each.host for each in everyone}) == 1
            host = _LOOPBACK if one_host else local_address_towards(master)
            address = child.acquire(location, host, settings.start_timeout_s)
            started = (location, host)
        else:
            address = (location.host, location.port)
        wish = min(each.lanes for each in everyone), settings.slots
        if location.parent is not None:
            places = [Location.parse(each.url) for each in everyone]
            leaves = [(place.host, place.port) for place in places]
            lease = create_tree(location.parent, leaves, *wish, settings.connect_timeout_s)
            return json.dumps([ticket.to_json() for ticket in lease.tickets])
        lease = create_job(address, size, *wish, settings.connect_timeout_s)
        return json.dumps([lease.ticket.to_json()])

    worker: Worker | None = None
    try:
        if rank == 0:
            text = meeting.publish(get_job)
        else:
            text = meeting.ticket(settings.start_timeout_s + settings.connect_timeout_s)
        ticket = _own(text, rank)

        def join() -> None:
            nonlocal worker
            worker = Worker(
                ticket, rank, loss=_loss(settings, rank), peer_timeout_s=settings.peer_timeout_s
            )
            worker.join(settings.connect_timeout_s)

        meeting.join(join)
    except BaseException:
        if worker is not None:
            worker.close()
        _give_back(lease, started)
        raise
    if worker is None:
        raise RendezvousError(f"rank {rank} has no worker")
    return Membership(worker, ticket, settings.aggregator, lease, started)


def _own(text: str, rank: int) -> JobTicket:
    """The ticket of this rank's aggregator, among those that rank 0 has published."""
    for each in map(JobTicket.from_json, json.loads(text)):
        if rank in (each.members or range(each.workers)):
            return each
    raise RendezvousError(f"rank 0 has no ticket for rank {rank}")


def _loss(settings: Settings, rank: int) -> LossSwitch | None:
    if settings.test_loss == 0:
        return None
    return LossSwitch(settings.test_loss, settings.test_seed, rank)


def _introduction(settings: Settings) -> Introduction:
    try:
        location = Location.parse(settings.aggregator)
        if settings.lanes is not None:
            lanes = settings.lanes
        elif location.embedded:
            # Rank 0 starts it, most likely on the host that torchrun calls master; a way to the
            # own host goes through the loopback interface, by whichever name.
            lanes = lanes_to(os.environ.get("MASTER_ADDR", _LOOPBACK), wire.PORT)
        else:
            lanes = lanes_to(location.host, location.port)
    except (AffluxError, OSError, ValueError) as error:
        text = str(error)
        if settings.aggregator not in text:
            text = f"{settings.aggregator}: {text}"
        return Introduction(settings.aggregator, host_identity(), 1, text)
    parent = "{}:{}".format(*location.parent) if location.parent is not None else ""
    return Introduction(settings.aggregator, host_identity(), lanes, parent=parent)
