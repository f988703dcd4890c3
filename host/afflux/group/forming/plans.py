"""Rank 0's plan for ranks that share no memory, and the reducer that each rank makes of it.

A plan travels through the store. Every rank makes its reducer of the same one, together:

GlooPlan     nothing else can be had, or it was asked for
JobPlan      jobs at aggregators that AFFLUX_AGGREGATOR names
StreamsPlan  streams between the ranks
"""

import functools
import json
import logging
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from afflux.group.forming.host_memory import Units, share_on_hosts
from afflux.group.forming.job_lease import GroupLease
from afflux.group.forming.joining import GoingOn, join_jobs
from afflux.group.forming.lookout import AggregatorLookout
from afflux.group.forming.replacement import Keys, Replacement, key_of
from afflux.group.forming.streams import Aggregator, StreamsGroup, join_streams
from afflux.group.forming.topology_choice import choose, hosts_of, names_of_hosts
from afflux.group.reducers.continued_streams_reducer import ContinuedStreamsReducer
from afflux.group.reducers.fail_back import FailBack
from afflux.group.reducers.gloo_reducer import GlooReducer
from afflux.group.reducers.reducer import Reducer
from afflux.group.reducers.streams_reducer import StreamsReducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl, lanes_to
from afflux.group.settings.variables import Settings
from afflux.group.store.epoch import Epoch
from afflux.group.store.exchange import Exchange, RendezvousError
from afflux.group.store.introduction import Introduction, check_agreement
from afflux.group.store.keys import GroupStore, master_of
from afflux_drivers.addresses import authority
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.hosts.worker import HostsWorker, rails
from afflux_drivers.streams.handshake import aggregator_key
from afflux_drivers.streams.worker import StreamsWorker
from afflux_hdl.contract import wire

__all__ = [
    "Forming",
    "GlooPlan",
    "JobPlan",
    "Plan",
    "StreamsPlan",
    "decide",
    "from_json",
    "to_json",
]

_log = logging.getLogger("afflux")


class Forming(NamedTuple):
    """The parts from which a rank makes its reducer.

    Attributes:
        rank: Own.
        size: Ranks of the group.
        settings: Own.
        exchange: The group's.
        keys: The group's.
        lease: Of the group's jobs, at rank 0.
        everyone: The introductions of all ranks, at rank 0.
        change: The number of the change that comes when the aggregators end, from 1.
        aggregators: All that the group may use one after the other; empty for those of `settings`.
        patience_s: How long the ranks wait for one another in each step; None: as long as what is
            done there may take.
    """

    rank: int
    size: int
    settings: Settings
    exchange: Exchange
    keys: GroupStore
    lease: GroupLease
    everyone: list[Introduction]
    change: int = 1
    aggregators: tuple[AggregatorUrl, ...] = ()
    patience_s: float | None = None


class GlooPlan(NamedTuple):
    """All of a group's collectives are Gloo's.

    Attributes:
        topology: With the reason.
        asked: Whether that was asked for, or has been told before; if not, there is a warning.
    """

    topology: Topology
    asked: bool

    def make(self, forming: Forming) -> Reducer[Any]:
        """Return the reducer; warn at rank 0."""
        if forming.rank == 0 and not self.asked:
            _warn_of_gloo(self.topology.reason)
        return GlooReducer(forming.settings.aggregator, self.topology)


class JobPlan(NamedTuple):
    """Jobs at aggregators that AFFLUX_AGGREGATOR names.

    Attributes:
        topology: Flat, by host, or a tree.
        hosts: The ranks of each host.
        boards: Hosts and ports of aggregators that are elsewhere than their control channels.
        tickets: Of the jobs; empty if rank 0 first has to know more of the ranks.
        ends: Whether the group ends with its aggregators: nothing else may take their place.
    """

    topology: Topology
    hosts: list[list[int]]
    boards: list[list[Any]]
    tickets: str
    ends: bool = False

    def make(self, forming: Forming) -> Reducer[Any]:
        """Join the jobs. Collective."""
        topology, units = _units(forming, self.topology, self.hosts)
        try:
            text = self.tickets or self._get(forming, units)
            tickets = _own(text, units.own[0])
            return join_jobs(
                forming.exchange, forming.rank, forming.settings, tickets, forming.lease,
                units, topology, None if self.ends else _going_on(forming, self.hosts),
            )  # fmt: skip
        except BaseException:
            units.close()
            raise

    def _get(self, forming: Forming, units: Units) -> str:
        """Return the tickets of jobs that rank 0 gets when it knows the units. Collective."""
        exchange, settings = forming.exchange, forming.settings
        patience_s = forming.patience_s or settings.start_timeout_s + settings.connect_timeout_s
        ways: list[int] = []
        if self.boards:
            lanes = partial(self._way, settings)
            ways = exchange.share("way", range(exchange.size), lanes, patience_s)

        def get() -> str:
            lanes = min(ways or (each.lanes for each in forming.everyone))
            if units.by_host and settings.rounding == "exact":
                lanes = wire.lanes_of_partial_sums(lanes)
            return forming.lease.get(lanes, units.all, forming.everyone)

        (text,) = exchange.share("job", [0], get, patience_s)
        return str(text)

    def _way(self, settings: Settings) -> int:
        """Return the most lanes that the ways from here to the boards carry.

        Raises:
            OSError: There is no way to one of them; the message names it.
            ValueError: Not even a packet of one block fits.
        """
        if settings.lanes is not None:
            return settings.lanes
        lanes = []
        for host, port in self.boards:
            try:
                lanes.append(lanes_to(host, port))
            except (OSError, ValueError) as error:
                kind = type(error)
                raise kind(f"the board at {authority(host, port)}: {error}") from error
        return min(lanes)


class StreamsPlan(NamedTuple):
    """Streams between the ranks.

    Attributes:
        topology: Why.
        hosts: The ranks of each host.
        key: 16 bytes in hexadecimal, by which ranks know each other.
        require: Whether Gloo may not take their place.
        aggregator: The secret that ranks prove to the aggregator, in hexadecimal; empty if there is
            none.
        ends: Whether the group ends with its aggregator: nothing else may take its place.
    """

    topology: Topology
    hosts: list[list[int]]
    key: str
    require: bool
    aggregator: str = ""
    ends: bool = False

    def make(self, forming: Forming) -> Reducer[Any]:
        """Share memory within hosts, and connect with the ranks of others. Collective."""
        topology, units = _units(forming, self.topology, self.hosts)
        try:
            group = StreamsGroup(
                self.hosts, rails(units.all) if units.by_host else [range(forming.size)],
                bytes.fromhex(self.key), forming.keys.incarnation, _master(forming),
            )  # fmt: skip
            url = forming.settings.aggregator
            named = Aggregator((url.host, url.port), bytes.fromhex(self.aggregator))
            streams = join_streams(
                forming.exchange, forming.rank, group, forming.settings,
                named if url.host else None, forming.patience_s,
            )  # fmt: skip
            where = authority(url.host, url.port) if url.host else ""
            if not units.by_host:
                going_on = _going_on(forming, self.hosts) if where and not self.ends else None
                alone = StreamsWorker(
                    forming.rank, streams.lanes, streams.threads, streams.one_hop, where,
                    streams.ucx, going_on is not None,
                )  # fmt: skip
                if going_on is None:
                    return StreamsReducer(alone, url, topology)
                return ContinuedStreamsReducer(
                    alone, url, topology, forming.rank, forming.size, *going_on,
                    forming.settings.peer_timeout_s,
                )  # fmt: skip
            rounds = forming.settings.rounding == "host"
            worker = HostsWorker(
                forming.rank, units.all, units.shared, streams.lanes, streams.threads,
                streams.one_hop, rounds, where, streams.ucx,
            )  # fmt: skip
            return StreamsReducer(worker, url, topology)
        except BaseException:
            units.close()
            raise

    def without(self, reason: str) -> GlooPlan:
        """Return what all ranks do if there are no streams.

        Raises:
            RendezvousError: Gloo may not take their place.
        """
        reason = f"{self.topology.reason}; and there are no streams: {reason}"
        if self.require:
            raise RendezvousError(_only_gloo(reason))
        return GlooPlan(Topology("gloo", reason), asked=False)


Plan = GlooPlan | JobPlan | StreamsPlan


def to_json(plan: Plan) -> str:
    """Return a plan as the ticket of `docs/protocol.md`, section 10.4."""
    ticket: dict[str, Any] = {"topology": plan.topology, "require": False}
    match plan:
        case GlooPlan():
            ticket["gloo"] = "" if plan.asked else plan.topology.reason
        case JobPlan():
            if plan.boards:
                ticket["boards"] = plan.boards
            ticket["hosts"] = plan.hosts
            ticket["require"] = plan.ends
            if plan.tickets:
                ticket["job"] = plan.tickets
        case StreamsPlan():
            ticket |= {"require": plan.require}
            ticket["streams"] = {"hosts": plan.hosts, "key": plan.key}
            if plan.aggregator:
                ticket["streams"] |= {"aggregator": plan.aggregator, "ends": plan.ends}
    return json.dumps(ticket)


def from_json(text: str) -> Plan:
    """Read back what `to_json` returned."""
    ticket = json.loads(text)
    topology = Topology(*ticket["topology"])
    if "gloo" in ticket:
        return GlooPlan(topology, asked=not ticket["gloo"])
    if "streams" in ticket:
        return StreamsPlan(topology, **ticket["streams"], require=ticket["require"])
    return JobPlan(
        topology,
        ticket.get("hosts", []),
        ticket.get("boards", []),
        ticket.get("job", ""),
        ticket["require"],
    )


def decide(forming: Forming, unshared: str) -> Plan:
    """Return the plan for ranks that do not share memory. Rank 0 makes it for all.

    Args:
        forming: Of rank 0.
        unshared: Why memory is not shared, if it was tried.

    Raises:
        RendezvousError: The ranks do not go together, or what was asked for cannot be had.
    """
    everyone, settings, lease = forming.everyone, forming.settings, forming.lease
    check_agreement(everyone)
    url = settings.aggregator
    if url.scheme == "shm":
        raise RendezvousError(f"AFFLUX_AGGREGATOR={url}, but memory is not shared: {unshared}")
    hosts = hosts_of(everyone)
    topology = choose(url, hosts, unshared)
    lanes = min(each.lanes for each in everyone)
    ends = settings.require and not settings.spare
    if topology.name == "gloo":
        if settings.require:
            raise RendezvousError(_only_gloo(topology.reason))
        return GlooPlan(topology, asked=url.scheme == "gloo")
    if topology.streamed:
        _log.info("ranks of each host: %s", names_of_hosts(hosts))
        key = aggregator_key(settings.control_secret()).hex() if url.host else ""
        if key and any(each.scheme != "streams" for each in settings.spare or ()):
            raise RendezvousError(
                f"AFFLUX_AGGREGATOR={url} sums what an aggregator of packets does not, so those of "
                "AFFLUX_SPARE must be streams://host:port, too"
            )
        return StreamsPlan(topology, hosts, secrets.token_hex(16), settings.require, key, ends)
    # The ranks look for their ways to boards before a job is asked for.
    boards = lease.boards()
    if topology.by_host:
        _log.info("ranks of each host: %s", names_of_hosts(hosts))
    elif not boards:
        flat = Units.flat(forming.rank, forming.size)
        return JobPlan(topology, hosts, [], lease.get(lanes, flat.all, everyone), ends)
    return JobPlan(topology, hosts, boards, "", ends)


def _going_on(forming: Forming, hosts: list[list[int]]) -> GoingOn | None:
    """Return how the group goes on when its aggregators end; None if it is one rank's."""
    settings = forming.settings
    if forming.size == 1:
        return None
    named = forming.aggregators or (settings.aggregator, *(settings.spare or ()))

    def patient(exchange: Exchange, settings: Settings) -> Forming:
        # All must hear from all: a rank that gave up early would leave others waiting.
        return forming._replace(exchange=exchange, settings=settings, patience_s=exchange.timeout_s)

    def spare(
        exchange: Exchange, url: AggregatorUrl, spares: Sequence[AggregatorUrl], keys: Keys,
        reason: str = "",
    ) -> Reducer[Any]:  # fmt: skip
        other = replace(settings, aggregator=url, spare=tuple(spares))
        lease = GroupLease(forming.keys.store, other)
        reason = reason or f"AFFLUX_SPARE={url}"
        ends = settings.require and not spares
        plan: JobPlan | StreamsPlan
        if url.scheme == "streams":
            plan = StreamsPlan(
                Topology("streams", reason), hosts, keys.ranks, False, keys.aggregator, ends
            )
        else:
            addresses = [list(each) for each in url.addresses]
            topology = choose(url, hosts, "")._replace(reason=reason)
            plan = JobPlan(topology, hosts, addresses, "", ends)
        then = patient(exchange, other)._replace(
            lease=lease, change=forming.change + 1, aggregators=named
        )
        try:
            return plan.make(then)
        except BaseException:
            lease.give_back()
            raise

    def streams(exchange: Exchange, topology: Topology, secret: str) -> Reducer[Any]:
        other = replace(settings, aggregator=AggregatorUrl("streams"))
        plan = StreamsPlan(topology, hosts, secret, require=False)
        return plan.make(patient(exchange, other))

    # An aggregator of streams has calls that those of packets do not know. Of a tree each rank
    # knows its own leaf alone.
    streamed = settings.aggregator.scheme == "streams"
    back = [
        each
        for each in named
        if each.host and not each.parent and (each.scheme == "streams" or not streamed)
    ]

    def offer(url: AggregatorUrl) -> str:
        others = [str(each) for each in back if each != url]
        return json.dumps([str(url), others, secrets.token_hex(16), key_of([url], settings)])

    def join_again(exchange: Exchange, text: str) -> Reducer[Any]:
        url, others, *keys = json.loads(text)
        spares = [AggregatorUrl.parse(each) for each in others]
        again = spare(
            exchange, AggregatorUrl.parse(url), spares, Keys(*keys), f"{url} answers again"
        )
        if forming.rank == 0:
            _log.warning("a group uses an aggregator again: %s", url)
        return again

    looks = forming.rank == 0 and settings.fail_back_s and back
    lookout = AggregatorLookout(back, settings, offer) if looks else None
    of_group = forming.keys, forming.rank, forming.size
    made = Replacement(*of_group, settings, spare, streams, forming.change)
    return GoingOn(
        Epoch(*of_group, forming.change), made, forming.exchange.timeout_s,
        FailBack(*of_group, forming.change, join_again, lookout),
    )  # fmt: skip


def _units(forming: Forming, topology: Topology, hosts: list[list[int]]) -> tuple[Topology, Units]:
    """Share memory with the other ranks of the host, if the topology asks for it. Collective."""
    if not topology.by_host:
        return topology, Units.flat(forming.rank, forming.size)
    units = share_on_hosts(forming.exchange, forming.rank, hosts)
    return topology if units.by_host else topology.flat(), units


def _master(forming: Forming) -> str:
    """Return the name or address of the store's server."""
    return master_of(forming.keys.store) or os.environ.get("MASTER_ADDR", "")


def _own(text: str, rank: int) -> list[JobTicket]:
    """Return the tickets for this rank, among those that rank 0 has published."""
    everything = map(JobTicket.from_json, json.loads(text))
    own = [each for each in everything if rank in (each.members or range(each.workers))]
    if not own:
        raise RendezvousError(f"rank 0 has no ticket for rank {rank}")
    return own


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
