"""How the ranks of one host get a segment of memory that they share."""

from typing import Any

from afflux.group.store.introduction import Introduction
from afflux.group.store.keys import GroupStore
from afflux.group.store.roll_call import RollCall
from afflux_drivers.errors import AffluxError
from afflux_drivers.shared.segment import SegmentClaim, SegmentOffer
from afflux_drivers.shared.worker import SharedWorker

__all__ = ["claim_memory", "offer_memory"]

_FIRST_GLANCE_S = 0.02
_LAST_GLANCE_S = 0.25
_ANSWER_S = 5.0
"""Rank 0 answers within milliseconds, unless its host is busy."""

_APART = "apart"
"""Why some rank cannot share memory with rank 0."""

_UNUSABLE = (AffluxError, OSError, RuntimeError, ValueError)


def offer_memory(
    roll_call: RollCall, keys: GroupStore, introduction: Introduction, size: int
) -> tuple[SharedWorker | None, str]:
    """Hand a new segment to all other ranks, as rank 0, for as long as they may take to come.

    Returns:
        The worker, or None if a rank has not mapped the segment; and why not, with the rank's
        name. That is empty if some rank just did not come.
    """
    try:
        offer = SegmentOffer(size)
    except _UNUSABLE as error:
        return None, f"rank 0: {error}"
    worker: SharedWorker | None = None
    agreed = False
    try:
        try:
            worker = SharedWorker(offer.descriptor, 0, size)
        except _UNUSABLE as error:
            return None, f"rank 0: {error}"
        ticket = {"name": offer.name, "secret": offer.secret}
        roll_call.offer({"segment": ticket, **introduction.to_fields()})
        reason = _serve(offer, roll_call, keys)
        agreed = not reason and not offer.missing
        return (worker, "") if agreed else (None, reason)
    finally:
        offer.conclude(agreed)
        if worker is not None and not agreed:
            worker.close()


def _serve(offer: SegmentOffer, roll_call: RollCall, keys: GroupStore) -> str:
    glance_s = _FIRST_GLANCE_S
    while offer.missing and roll_call.left_s > 0:
        offer.serve(min(glance_s, roll_call.left_s))
        for rank, refusal in offer.refusals.items():
            return f"rank {rank}: {refusal}"
        apart = roll_call.in_time(keys).find(_APART) if offer.missing else None
        if apart is not None:
            return apart.decode()
        glance_s = min(glance_s * 1.5, _LAST_GLANCE_S)
    return ""


def claim_memory(
    ticket: dict[str, Any], roll_call: RollCall, introduction: Introduction, rank: int, size: int
) -> tuple[SharedWorker, GroupStore] | None:
    """Map the segment that a ticket offers, at a rank other than 0.

    Returns:
        The worker, and the keys of its group, if all ranks have mapped it; None if not, or if the
        ticket is of an earlier incarnation. Then another ticket comes.
    """
    keys = roll_call.keys()
    reason = _why_apart(ticket, introduction)
    worker = None
    if not reason:
        worker, reason = _claim(ticket["segment"], roll_call, rank, size)
    if worker is not None:
        return worker, keys
    try:
        if reason:
            # Nobody reads it if the ticket is of an earlier incarnation.
            roll_call.in_time(keys).set(_APART, f"rank {rank}: {reason}")
    finally:
        keys.release()
    return None


def _why_apart(ticket: dict[str, Any], own: Introduction) -> str:
    """Return why a rank does not go by this offer; empty if it may."""
    theirs = Introduction.from_fields(ticket)
    if own.error:
        return own.error
    if not own.goes_with(theirs):
        return f"its adapter, {own.adapter}, does not go with rank 0's, {theirs.adapter}"
    if str(own.url) != str(theirs.url):
        return f"AFFLUX_AGGREGATOR={own.url} is not rank 0's"
    if own.rounding != theirs.rounding:
        return f"AFFLUX_ROUNDING={own.rounding} is not rank 0's"
    if own.host != theirs.host:
        return "on another host or in another network namespace than rank 0"
    return ""


def _claim(
    offered: dict[str, str], roll_call: RollCall, rank: int, size: int
) -> tuple[SharedWorker | None, str]:
    worker: SharedWorker | None = None
    try:
        claim = SegmentClaim(offered["name"], offered["secret"], rank, _ANSWER_S)
    except _UNUSABLE as error:
        return None, str(error)
    try:
        try:
            worker = SharedWorker(claim.descriptor, rank, size)
        except _UNUSABLE as error:
            claim.answer(f"{error or type(error).__name__}")
            return None, ""
        claim.answer()
        if claim.agreed(max(roll_call.left_s, 0.01)):
            claimed, worker = worker, None
            return claimed, ""
        return None, ""
    except OSError:
        return None, ""
    finally:
        claim.close()
        if worker is not None:
            worker.close()
