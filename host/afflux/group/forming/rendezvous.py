"""How a new group gets its reducers: over memory that its ranks share, or over aggregators.

AFFLUX_AGGREGATOR   ranks that can share memory   ranks that cannot
auto                shared memory                 streams; else Gloo
shm://              shared memory                 an error
gloo://             Gloo                          Gloo
all others          aggregators                   aggregators
"""

import logging
import os
from typing import Any, NamedTuple

from afflux.group.forming.job_lease import GroupLease
from afflux.group.forming.plans import (
    Forming,
    GlooPlan,
    StreamsPlan,
    decide,
    from_json,
    to_json,
)
from afflux.group.forming.shared_memory import claim_memory, offer_memory
from afflux.group.reducers.reducer import Reducer
from afflux.group.reducers.shared_reducer import SharedMemoryReducer
from afflux.group.settings.aggregator_url import AggregatorUrl, lanes_to
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.bounded import StoreSilent
from afflux.group.store.exchange import Exchange, RendezvousError
from afflux.group.store.introduction import Introduction, host_identity
from afflux.group.store.keys import GroupStore
from afflux.group.store.roll_call import RollCall
from afflux_drivers.errors import AffluxError, timed_out
from afflux_drivers.shared.worker import SharedWorker
from afflux_hdl.contract import wire

__all__ = ["Met", "decline", "meet"]

_log = logging.getLogger("afflux")

_LOOPBACK = "127.0.0.1"

_LATE_S = 3.0
"""For a rank on a busy host that has waited as long as the others."""

_DECLINE_S = 5.0
"""A rank that cannot take part lets the others know, but does not wait for them long."""

_UNKNOWN_MTU = 1500


class Met(NamedTuple):
    """The agreement of a new group's ranks.

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
    roll_call = _roll_call(membership)
    try:
        roll_call.introduce(introduction)
        return _follow(roll_call, introduction, membership, settings)
    except StoreSilent as silence:
        raise RendezvousError(
            f"{timed_out(membership.timeout.total_seconds())}: rank {membership.rank} of "
            f"{membership.size} waited for the others to come to the new group: {silence}"
        ) from None


def _roll_call(membership: Membership) -> RollCall:
    limit_s = membership.timeout.total_seconds()
    return RollCall(membership.store, membership.rank, membership.size, limit_s)


def decline(membership: Membership, reason: str) -> None:
    """Make the group fail at the other ranks because this one cannot take part. Collective."""
    roll_call = _roll_call(membership)
    roll_call.hurry(_DECLINE_S)
    introduction = Introduction(
        AggregatorUrl("auto"), host_identity(), wire.LANES_MAX, reason, membership.adapter
    )
    try:
        roll_call.introduce(introduction)
        _follow(roll_call, introduction, membership, Settings()).keys.release()
    except (AffluxError, RuntimeError):
        _log.debug("declined", exc_info=True)


def _follow(
    roll_call: RollCall,
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
            keys = roll_call.keys()
            if introduction.url.may_share and not introduction.error:
                worker, reason = offer_memory(roll_call, keys, introduction, size)
                if worker is not None:
                    return _shared(worker, keys, settings)
            everyone = roll_call.call_roll(keys)
        else:
            ticket = roll_call.next_ticket()
            while "segment" in ticket:
                claimed = claim_memory(ticket, roll_call, introduction, rank, size)
                if claimed is not None:
                    return _shared(*claimed, settings)
                ticket = roll_call.next_ticket()
            keys = roll_call.keys()
            roll_call.confirm(keys)
        exchange = Exchange(keys.asked, rank, size, timeout.total_seconds())
        lease = GroupLease(keys.store, settings)
        forming = Forming(rank, size, settings, exchange, keys, lease, everyone)
        return Met(_make(forming, reason), keys)
    except BaseException:
        if keys is not None:
            keys.release()
        raise


def _shared(worker: SharedWorker, keys: GroupStore, settings: Settings) -> Met:
    return Met(SharedMemoryReducer(worker, settings.aggregator), keys)


def _make(forming: Forming, unshared: str) -> Reducer[Any]:
    """Make the reducer of a rank that shares no memory with all others. Collective.

    Args:
        forming: The parts from which it is made.
        unshared: Why memory is not shared, at rank 0.
    """
    exchange, settings = forming.exchange, forming.settings
    try:
        if forming.rank == 0:
            text = exchange.publish(lambda: to_json(decide(forming, unshared)))
        else:
            text = exchange.ticket(settings.start_timeout_s + settings.connect_timeout_s)
        plan = from_json(text)
        if isinstance(plan, GlooPlan):
            return plan.make(forming)
        failure: Exception | None = None
        try:
            made = plan.make(forming)
        except Exception as error:
            failure = error
        except BaseException as error:
            exchange.report(error, stays=False)
            raise
        try:
            # A user that asks for UCX does not want Gloo.
            may_fall = settings.aggregator.scheme == "auto" and settings.carrier != "ucx"
            # A rank may be connecting in vain, in one network after the other.
            networks = len(settings.interface or ("",))
            patience_s = settings.connect_timeout_s * networks + _LATE_S
            reason = exchange.verdict(failure, may_fall, patience_s)
        except BaseException:
            if failure is None:
                made.leave()
            raise
        if not reason:
            return made
        if failure is None:
            made.leave()
        # Nothing else may fall.
        assert isinstance(plan, StreamsPlan)
        try:
            return plan.without(reason).make(forming)
        except RendezvousError as error:
            raise error from failure
    except BaseException:
        forming.lease.give_back()
        raise


def _introduction(settings: Settings, adapter: str) -> Introduction:
    """Introduce this rank.

    Raises:
        OSError: The aggregator's name does not resolve, or there is no route to it.
        ValueError: Not even a packet of one block fits the route's MTU.
    """
    return Introduction(
        settings.aggregator,
        host_identity(),
        _lanes(settings),
        adapter=adapter,
        rounding=settings.rounding,
        carrier=settings.carrier,
    )


def _lanes(settings: Settings) -> int:
    url = settings.aggregator
    if settings.lanes is not None:
        return settings.lanes
    if url.may_share:
        return wire.LANES_MAX
    if url.scheme in ("streams", "gloo"):
        # They have no such packets.
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
