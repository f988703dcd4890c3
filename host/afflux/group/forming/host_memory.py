"""How the ranks of each host, where there are several hosts, get memory that they share.

The least rank of a host with several ranks is its leader:

    leaders   create a segment, publish where they hand it out        memory/<leader>
    others    map it, or publish why they cannot ask for it           memory/<r>
    leaders   publish whether all have, or why not                    shared/<leader>
    all       read all of these: a host whose ranks share memory is one unit, which has one worker;
              elsewhere each rank is a unit
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from afflux.group.store.exchange import Exchange
from afflux_drivers.errors import AffluxError
from afflux_drivers.shared.segment import SegmentClaim, SegmentOffer
from afflux_drivers.shared.worker import SharedWorker

__all__ = ["Units", "share_on_hosts"]

_log = logging.getLogger("afflux")

_UNUSABLE = (AffluxError, OSError, RuntimeError, ValueError)

_PATIENCE_S = 5.0
"""The ranks have met: each of them takes milliseconds, unless its host is busy."""


_GLANCE_S = 0.05


class Units(NamedTuple):
    """The workers of a group's ranks at its aggregators: each unit has one.

    Attributes:
        all: The ranks of each unit, the leader first.
        own: Those of the own unit.
        shared: The memory of the own unit, if it has several ranks.
    """

    all: list[list[int]]
    own: list[int]
    shared: SharedWorker | None

    @property
    def by_host(self) -> bool:
        """Whether a unit has several ranks."""
        return any(len(ranks) > 1 for ranks in self.all)

    @classmethod
    def flat(cls, rank: int, size: int) -> "Units":
        """Return those of a group in which each rank has a worker."""
        return cls([[each] for each in range(size)], [rank], None)

    def close(self) -> None:
        """Let go of the memory."""
        if self.shared is not None:
            self.shared.close()


def share_on_hosts(exchange: Exchange, rank: int, hosts: Sequence[Sequence[int]]) -> Units:
    """Share memory with the other ranks of the host, if all of them can. Collective.

    Args:
        exchange: The group's.
        rank: Own rank.
        hosts: The ranks of each host.

    Raises:
        RendezvousError: A leader did not come.
    """
    own = next(list(ranks) for ranks in hosts if rank in ranks)
    leaders = [ranks[0] for ranks in hosts if len(ranks) > 1]
    shared: SharedWorker | None = None
    try:
        if len(own) > 1:
            shared = _offer(exchange, own) if rank == own[0] else _claim(exchange, rank, own)
        reasons = dict(
            zip(leaders, exchange.parts("shared", leaders, 2 * _PATIENCE_S), strict=True)
        )
    except BaseException:
        if shared is not None:
            shared.close()
        raise
    units: list[list[int]] = []
    for ranks in hosts:
        reason = reasons.get(ranks[0], "")
        units += [[each] for each in ranks] if reason else [list(ranks)]
        if reason and rank == min(leaders):
            _log.warning(
                "ranks %s of a host cannot share memory, so each of them sends its own stream: %s",
                ", ".join(map(str, ranks)),
                reason,
            )
    own = next(ranks for ranks in units if rank in ranks)
    if len(own) == 1 and shared is not None:
        shared.close()
        shared = None
    if all(len(ranks) == 1 for ranks in units):
        return Units.flat(rank, sum(map(len, hosts)))
    return Units(units, own, shared)


def _offer(exchange: Exchange, ranks: Sequence[int]) -> SharedWorker | None:
    """Hand a new segment to the other ranks of the host, as its leader."""
    worker: SharedWorker | None = None
    reason = ""
    try:
        offer = SegmentOffer(len(ranks))
    except _UNUSABLE as error:
        reason = f"rank {ranks[0]}: {error}"
        exchange.publish_part("memory", dict)
        exchange.publish_part("shared", lambda: reason)
        return None
    try:
        try:
            worker = SharedWorker(offer.descriptor, 0, len(ranks), ranks)
        except _UNUSABLE as error:
            reason = f"rank {ranks[0]}: {error}"
        ticket = {} if reason else {"name": offer.name, "secret": offer.secret}
        exchange.publish_part("memory", lambda: ticket)
        if not reason:
            reason = _serve(exchange, offer, ranks)
        exchange.publish_part("shared", lambda: reason)
    finally:
        offer.conclude(not reason)
        if reason and worker is not None:
            worker.close()
    return None if reason else worker


def _serve(exchange: Exchange, offer: SegmentOffer, ranks: Sequence[int]) -> str:
    """Return why not all have mapped the segment; empty if they have."""
    deadline = time.monotonic() + _PATIENCE_S
    while offer.missing and not offer.refusals and time.monotonic() < deadline:
        offer.serve(_GLANCE_S)
        for rank in (ranks[index] for index in offer.missing):
            if exchange.have_parts("memory", [rank]):
                (reason,) = exchange.parts("memory", [rank], _PATIENCE_S)
                return f"rank {rank}: {reason}"
        # A rank that has heard of it does not come any more.
        failure = exchange.failure()
        if failure:
            return failure
    for index, refusal in offer.refusals.items():
        return f"rank {ranks[index]}: {refusal}"
    names = ", ".join(str(ranks[index]) for index in sorted(offer.missing))
    return f"no answer from rank(s) {names}" if names else ""


def _claim(exchange: Exchange, rank: int, ranks: Sequence[int]) -> SharedWorker | None:
    """Map the segment of the host's leader, at another rank."""
    ticket: dict[str, Any]
    (ticket,) = exchange.parts("memory", ranks[:1], 2 * _PATIENCE_S)
    if not ticket:
        return None
    index = ranks.index(rank)
    try:
        claim = SegmentClaim(ticket["name"], ticket["secret"], index, _PATIENCE_S)
    except _UNUSABLE as error:
        reason = str(error) or type(error).__name__
        exchange.publish_part("memory", lambda: reason)
        return None
    worker: SharedWorker | None = None
    try:
        worker = SharedWorker(claim.descriptor, index, len(ranks), ranks)
        claim.answer()
        if claim.agreed(_PATIENCE_S):
            found, worker = worker, None
            return found
    except _UNUSABLE as error:
        if worker is None:
            claim.answer(str(error) or type(error).__name__)
    finally:
        claim.close()
        if worker is not None:
            worker.close()
    return None
