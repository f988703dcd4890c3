"""How a new group gets its reducers: over memory that its ranks share, or over aggregators.

AFFLUX_AGGREGATOR   ranks that can share memory   ranks that cannot
auto                shared memory                 shards and Gloo, by the `contest`; else Gloo
shm://              shared memory                 an error
gloo://             Gloo                          Gloo
all others          aggregators                   aggregators
"""

import functools
import json
import logging
import os
import secrets
from functools import partial
from typing import Any, NamedTuple

from afflux.group.aggregator_url import AggregatorUrl, lanes_to
from afflux.group.bounded_store import StoreSilent
from afflux.group.contest import contest_of, known
from afflux.group.exchange import (
    Exchange,
    Introduction,
    RendezvousError,
    check_agreement,
    host_identity,
)
from afflux.group.gloo_reducer import GlooReducer
from afflux.group.host_memory import Units, share_on_hosts
from afflux.group.host_worker import HostWorker
from afflux.group.job_lease import GroupLease
from afflux.group.meeting import Meeting
from afflux.group.membership import Membership
from afflux.group.rates import Rates
from afflux.group.reducer import Holding, JobReducer, NativeJobReducer, Reducer
from afflux.group.settings import Settings
from afflux.group.shards import START_S, Shards, ShardsPlan
from afflux.group.shared_memory import claim_memory, offer_memory
from afflux.group.shared_reducer import SharedMemoryReducer
from afflux.group.topology import Topology, choose, hosts_of, names_of_hosts
from afflux.group.torch_store import GroupStore, master_of
from afflux_drivers.addresses import authority
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError, timed_out
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
    try:
        meeting.introduce(introduction)
        return _follow(meeting, introduction, membership, settings)
    except StoreSilent as silence:
        raise RendezvousError(
            f"{timed_out(membership.timeout.total_seconds())}: rank {membership.rank} of "
            f"{membership.size} waited for the others to come to the new group: {silence}"
        ) from None


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
    try:
        meeting.introduce(introduction)
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
        exchange = Exchange(keys.asked, rank, size, timeout.total_seconds())
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
    lease = GroupLease(keys.store, settings)
    units = Units.flat(rank, size)

    def first_ticket() -> str:
        check_agreement(everyone)
        url = settings.aggregator
        if url.scheme == "shm":
            raise RendezvousError(f"AFFLUX_AGGREGATOR={url}, but memory is not shared: {reason}")
        hosts = hosts_of(everyone)
        topology = choose(url, hosts, reason)
        ticket: dict[str, Any] = {"topology": topology, "require": settings.require, "contest": ""}
        if topology.sharded and url.scheme == "auto" and not settings.require:
            ticket["contest"] = contest_of(everyone, settings.interface or ())
            earlier = known(ticket["contest"])
            if isinstance(earlier, Topology):
                return json.dumps({**ticket, "topology": earlier, "gloo": ""})
            if earlier is not None:
                ticket["rates"] = earlier.points
        if topology.name == "gloo":
            if settings.require:
                raise RendezvousError(_only_gloo(topology.reason))
            return json.dumps({**ticket, "gloo": "" if url.scheme == "gloo" else topology.reason})
        if topology.sharded:
            _log.info("ranks of each host: %s", names_of_hosts(hosts))
            lanes = min(each.lanes for each in everyone)
            plan = ShardsPlan(hosts, secrets.token_hex(16), lanes, settings.slots)
            return json.dumps({**ticket, "shards": plan._asdict()})
        if boards := lease.boards():
            # The ranks look for their ways there before a job is asked for.
            ticket["boards"] = boards
        if topology.by_host:
            _log.info("ranks of each host: %s", names_of_hosts(hosts))
            return json.dumps({**ticket, "hosts": hosts})
        if boards:
            return json.dumps(ticket)
        lanes = min(each.lanes for each in everyone)
        return json.dumps({**ticket, "job": lease.get(lanes, units.all, everyone)})

    try:
        if rank == 0:
            ticket = json.loads(exchange.publish(first_ticket))
        else:
            patience_s = settings.start_timeout_s + settings.connect_timeout_s
            ticket = json.loads(exchange.ticket(patience_s))
        topology = Topology(*ticket["topology"])
        if topology.name != "gloo":
            maker = _Maker(exchange, keys, everyone, lease, rank, settings)
            failure: Exception | None = None
            try:
                reducer = maker.make(ticket, topology, units)
            except Exception as error:
                failure = error
            except BaseException as error:
                exchange.report(error, stays=False)
                raise
            try:
                may_fall = settings.aggregator.scheme == "auto"
                patience_s = START_S + settings.connect_timeout_s
                reason = exchange.verdict(failure, may_fall, patience_s)
            except BaseException:
                if failure is None:
                    reducer.leave()
                raise
            if not reason:
                return reducer
            if failure is None:
                reducer.leave()
            reason = f"{topology.reason}; and there are no shards: {reason}"
            if ticket["require"]:
                raise RendezvousError(_only_gloo(reason)) from failure
            topology = Topology("gloo", reason)
        if rank == 0 and ticket.get("gloo") != "":
            _warn_of_gloo(topology.reason)
        return GlooReducer(settings.aggregator, topology)
    except BaseException:
        lease.give_back()
        raise


class _Maker(NamedTuple):
    """What makes the reducer of a rank that shares no memory with all others."""

    exchange: Exchange
    keys: GroupStore
    everyone: list[Introduction]
    lease: GroupLease
    rank: int
    settings: Settings

    def make(self, ticket: dict[str, Any], topology: Topology, units: Units) -> JobReducer:
        """Join the aggregators that rank 0's ticket names or plans. Collective.

        Args:
            ticket: Rank 0's.
            topology: The same, as such.
            units: Those of ranks that share no memory.
        """
        exchange, rank, settings = self.exchange, self.rank, self.settings
        plan = ShardsPlan(**ticket["shards"]) if "shards" in ticket else None
        try:
            if topology.by_host:
                units = share_on_hosts(exchange, rank, plan.hosts if plan else ticket["hosts"])
                topology = topology if units.by_host else topology.flat()
            if plan is None:
                text = ticket.get("job") or self._job(units, ticket.get("boards", []))
                tickets = _own(text, units.own[0])
                return _join(exchange, rank, settings, tickets, self.lease, units, topology)
            master = master_of(self.keys.store) or os.environ.get("MASTER_ADDR", "")
            shards = Shards(exchange, rank, plan, units.all, settings, master)
            reducer = _join_shards(exchange, rank, settings, shards, units, topology)
            reducer.contest = ticket["contest"]
            if "rates" in ticket:
                reducer.rates = Rates(ticket["rates"])
            return reducer
        except BaseException:
            units.close()
            raise

    def _way(self, boards: list[tuple[str, int]]) -> int:
        """Return the most lanes that the ways from here to these boards carry.

        Raises:
            OSError: There is no way to one of them; the message names it.
            ValueError: Not even a packet of one block fits.
        """
        if self.settings.lanes is not None:
            return self.settings.lanes
        lanes = []
        for host, port in boards:
            try:
                lanes.append(lanes_to(host, port))
            except (OSError, ValueError) as error:
                kind = type(error)
                raise kind(f"the board at {authority(host, port)}: {error}") from error
        return min(lanes)

    def _job(self, units: Units, boards: list[tuple[str, int]]) -> str:
        """Return the tickets of jobs that rank 0 gets when it knows the units. Collective.

        Args:
            units: Those of ranks that share no memory.
            boards: Hosts and ports of aggregators that are elsewhere than their control channels.
        """
        patience_s = self.settings.start_timeout_s + self.settings.connect_timeout_s
        ways: list[int] = []
        if boards:
            everyone = range(self.exchange.size)
            ways = self.exchange.share("way", everyone, partial(self._way, boards), patience_s)

        def get() -> str:
            lanes = min(ways or (each.lanes for each in self.everyone))
            return self.lease.get(lanes, units.all, self.everyone)

        (text,) = self.exchange.share("job", [0], get, patience_s)
        return str(text)


def _only_gloo(reason: str) -> str:
    return f"AFFLUX_REQUIRE=1, but only Gloo is left: {reason}"


@functools.cache
def _warn_of_gloo(reason: str) -> None:
    """Warn that the user gets no more than Gloo; once, not for each group."""
    _log.warning(
        "the ranks of a group cannot share memory, so its collectives go through Gloo: %s. For "
        "ranks of several hosts, start `afflux serve` on one and set AFFLUX_AGGREGATOR=udp://host",
        reason,
    )


def _join_shards(
    exchange: Exchange,
    rank: int,
    settings: Settings,
    shards: Shards,
    units: Units,
    topology: Topology,
) -> JobReducer:
    try:
        tickets = shards.set_up()
        return _join(exchange, rank, settings, tickets, shards, units, topology)
    except BaseException:
        shards.give_back()
        raise


def _join(
    exchange: Exchange,
    rank: int,
    settings: Settings,
    tickets: list[JobTicket],
    holding: Holding,
    units: Units,
    topology: Topology,
) -> JobReducer:
    worker: Worker | None = None
    leads = rank == units.own[0]

    def join() -> None:
        nonlocal worker
        if not leads:
            return
        worker = Worker(
            tickets,
            rank,
            loss=_loss(settings, rank),
            peer_timeout_s=settings.peer_timeout_s,
        )
        try:
            worker.join(settings.connect_timeout_s)
        except AffluxError as error:
            error.args = (holding.named(str(error)),)
            raise

    try:
        exchange.join(join)
    except BaseException:
        if worker is not None:
            worker.close()
        raise
    where = ", ".join(authority(each.host, each.port) for each in tickets)
    _log.info(
        "rank %d: %s, %d lanes, %d slots at %s", rank, topology, tickets[0].lanes,
        tickets[0].slots, where,
    )  # fmt: skip
    if units.by_host:
        ours = HostWorker(rank, units.own, units.shared, worker)
        return JobReducer(ours, tickets, settings.aggregator, holding, topology)
    assert worker is not None
    return NativeJobReducer(worker, tickets, settings.aggregator, holding, topology)


def _own(text: str, rank: int) -> list[JobTicket]:
    """Return the tickets for this rank, among those that rank 0 has published."""
    everything = map(JobTicket.from_json, json.loads(text))
    own = [each for each in everything if rank in (each.members or range(each.workers))]
    if not own:
        raise RendezvousError(f"rank 0 has no ticket for rank {rank}")
    return own


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
    if url.scheme in ("shards", "gloo"):
        # The probes find out; Gloo has no such packets.
        return wire.LANES_MAX
    if not url.embedded:
        return min(lanes_to(*each) for each in url.addresses)
    # Rank 0 starts it, most likely on the host that torchrun calls master; a packet to the own
    # host goes through the loopback interface, by whichever name.
    try:
        return lanes_to(os.environ.get("MASTER_ADDR", _LOOPBACK), wire.PORT)
    except OSError:
        # The ranks have met without that name.
        return wire.lanes_for_mtu(_UNKNOWN_MTU)
